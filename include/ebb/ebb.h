/* Ebb for programs that own their tensors: all headers of the C API.
 *
 * Link with `pkg-config --cflags --libs ebb`, or find_package(ebb) and ebb::ebb in CMake. There are
 * two ways to use it.
 *
 * explicit  The program declares its tensors and acquires them around each use. Ebb keeps them
 *           within a budget: context.h, tensor.h, iteration.h, forecast.h, statistics.h. It needs
 *           no userfaultfd, and causes no page faults. examples/explicit.c is a whole program.
 * marked    The program allocates as ever and runs under `ebb run`. It only tells where it is:
 *           mark.h. examples/marked.c is a whole program. */
#ifndef EBB_EBB_H
#define EBB_EBB_H

#include "ebb/context.h"
#include "ebb/forecast.h"
#include "ebb/iteration.h"
#include "ebb/mark.h"
#include "ebb/phase.h"
#include "ebb/statistics.h"
#include "ebb/status.h"
#include "ebb/tensor.h"

#endif
