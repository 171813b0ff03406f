# What the trainer knows without operations and without Ebb: networks, data, checkpoints. Tests link
# it alone.
find_package(ZLIB REQUIRED)

file(GLOB train_sources CONFIGURE_DEPENDS train/base/*.c train/net/*.c train/data/*.c
  train/checkpoint.c)
add_library(ebb_train_ground STATIC ${train_sources})
ebb_settings(ebb_train_ground)
ebb_sanitize(ebb_train_ground)
target_include_directories(ebb_train_ground PUBLIC ${PROJECT_SOURCE_DIR})
target_link_libraries(ebb_train_ground PUBLIC ZLIB::ZLIB PkgConfig::XXHASH m)
