# Short commands for everything. They call CMake with the presets of CMakePresets.json.
#
#   make demo      packages, build, a training run in 60 % of its memory, compared to the last digit
#   make test      packages, build with warnings as errors, every test; last line: the counts
#   make test-whole   every test, with what is left out of `make test` for its time
#   make test-schedules  10,000 schedules of each program on the fake CUDA driver; SCHEDULES=N
#   make without-lab  a build that needs no LAPACKE, Clp and zlib, without CUDA, and its tests
#   make build     build/release/bin/ebb and the other programs
#   make deb       Debian packages in build/deb
#   make install   into PREFIX (default /usr/local); DESTDIR is honoured

# The distribution's Python, which has its PyTorch. The Python on PATH may be another one.
PYTHON := /usr/bin/python3
PREFIX ?= /usr/local
JOBS ?= $(shell nproc)

# Debian 12 packages for build, tests and demo. PyTorch only recommends a fast BLAS, and recommended
# packages are not installed. The reference BLAS multiplies matrices slowly.
PACKAGES := gcc libc6-dev make cmake ninja-build pkg-config \
	libzstd-dev libxxhash-dev libjansson-dev libncurses-dev libjs-dygraphs libcmocka-dev liblapacke-dev \
	clang-format scdoc man-db groff-base \
	coinor-libclp-dev coinor-libcbc3 libdnnl-dev zlib1g-dev dataset-fashion-mnist \
	python3 python3-torch python3-torchvision libopenblas0-pthread libjemalloc2 libmimalloc2.0

SOURCES = $(shell find src include shim cli bench tests train -name '*.[ch]' 2>/dev/null | sort)

TIDY_SOURCES = $(filter-out tests/programs/% tests/fuzz%,$(filter %.c,$(SOURCES)))

.PHONY: all deps build demo test test-whole test-schedules without-lab format format-check tidy asan tsan install deb deb-test clean

all: build

# Without a network, this prints nothing if all packages are installed.
deps:
	@missing=; for package in $(PACKAGES); do \
	  dpkg-query -W -f='$${db:Status-Status}' $$package 2>/dev/null | grep -qx installed \
	    || missing="$$missing $$package"; \
	done; \
	[ -n "$$missing" ] || exit 0; \
	echo "deps: installing$$missing"; \
	sudo=; [ "$$(id -u)" = 0 ] || sudo="sudo"; \
	if ! ls /var/lib/apt/lists/*Packages* >/dev/null 2>&1; then \
	  $$sudo env DEBIAN_FRONTEND=noninteractive apt-get -qq update || exit 1; \
	fi; \
	install="$$sudo env DEBIAN_FRONTEND=noninteractive apt-get -qq install -y --no-install-recommends"; \
	$$install $$missing || { \
	  $$sudo env DEBIAN_FRONTEND=noninteractive apt-get -qq update && $$install $$missing; }

build: deps
	@cmake --preset release >/dev/null
	@cmake --build --preset release -j $(JOBS)

demo: build
	@examples/demo.sh build/release/bin/ebb

test: deps
	@cmake --preset dev >/dev/null
	@cmake --build --preset dev -j $(JOBS)
	@$(PYTHON) .ci/ctest.py build/dev

# Each call on every device, each policy on every network: tests/devices.py says what is sampled.
test-whole:
	@EBB_TEST_WHOLE=1 $(MAKE) --no-print-directory test

# Threads of the programs sleep much, so more runs than processors are needed to keep these busy.
# BACKINGS="managed" takes one of the three. FIRST=N begins with another seed. TESTS="Schedules.NAME"
# takes one test. Programs that take long get a part of the schedules, unless ALL=1.
SCHEDULES ?= 10000
FIRST ?= 1
BACKINGS ?= managed vmm-host vmm-trusting
test-schedules: deps
	@cmake --preset dev >/dev/null
	@cmake --build --preset dev -j $(JOBS)
	@EBB_CUDA_SEEDS=$(SCHEDULES) EBB_CUDA_FIRST=$(FIRST) EBB_CUDA_BACKINGS="$(BACKINGS)" \
	  EBB_CUDA_ALL=$(ALL) EBB_CUDA_JOBS=$(JOBS) $(PYTHON) tests/test_cuda_whole.py $(TESTS)

# Builds without src/lab, and without what is there for CUDA, which does not know it. Runs the tests
# of that build that start no programs under Ebb. The longest tests of code that does not know
# src/lab run in the other build only.
without-lab: deps
	@cmake --preset $@ >/dev/null
	@cmake --build --preset $@ -j $(JOBS)
	@$(PYTHON) .ci/ctest.py build/$@ --exclude 'test_(launch|train|ebb_train|api|docs|layers|cache|runtime|parts|place|plan$$|profile|retire|stalls|stretches|gpu_bench|cuda_|steps|static_placement|slab_reclaim|replay_unordered|zvc|analyse|pool$$|replan|fakecuda|doctor|top|ring|manual|bench|ctest|sizes)'

# The sanitizers cover the planning code, and the runtime under its unit tests. The preloaded
# library is never instrumented, since it is malloc. So tests that start programs under it are left
# out. Left out are also tests that limit addresses (doctor), preload a clock (tune), or wait for
# whole packings (pack). Others build programs without the sanitizer (api_install, cuda_calls,
# cuda_door, cuda_record), or make a build of their own (cuda_sanitized). ThreadSanitizer makes whole
# trainings too slow (ebb_train).
tsan: TOO_SLOW = |ebb_train
asan tsan: deps
	@cmake --preset $@ >/dev/null
	@cmake --build --preset $@ -j $(JOBS)
	@$(PYTHON) .ci/ctest.py build/$@ --exclude 'test_(launch|docs|layers|doctor|tune$$|pack|cuda_(sanitized|calls|door|record)|api_install$(TOO_SLOW))'

format:
	@clang-format -i $(SOURCES)

format-check:
	@clang-format --dry-run -Werror $(SOURCES)

# Needs the package clang-tidy, which nothing else needs.
tidy: deps
	@command -v clang-tidy >/dev/null || { echo "tidy: install clang-tidy"; exit 1; }
	@cmake --preset dev >/dev/null
	@printf '%s\n' $(TIDY_SOURCES) | xargs -n 1 -P $(JOBS) clang-tidy --quiet -p build/dev

install: build
	@cmake --install build/release --prefix $(PREFIX)

# Debian packages in build/deb, checked by lintian. The maintainer has no address, as the packages'
# overrides say. Packages of debug symbols and a .changes file can have no override. Needs the
# packages debhelper and lintian, which nothing else needs. A copy of the tree is built, since the
# build writes into debian/.
deb: deps
	@command -v dh >/dev/null && command -v lintian >/dev/null \
	  || { echo "deb: install debhelper and lintian"; exit 1; }
	@rm -rf build/deb && mkdir -p build/deb/ebb
	@git ls-files -z --cached --others --exclude-standard | tar --null -T - -c | tar -x -C build/deb/ebb
	@cd build/deb/ebb && dpkg-buildpackage -us -uc -b -j$(JOBS) >../build.log 2>&1 \
	  || { tail -n 30 ../build.log; exit 1; }
	@cd build/deb && lintian --allow-root --fail-on error $$(ls *.deb | grep -v dbgsym)
	@cd build/deb && lintian --allow-root --fail-on error --suppress-tags bogus-mail-host *.changes
	@ls build/deb/*.deb

# As root: installs the packages of `make deb` into a copy of this system that nobody keeps, and
# runs debian/tests there.
deb-test:
	@tests/deb_in_overlay.sh build/deb

clean:
	@rm -rf build
