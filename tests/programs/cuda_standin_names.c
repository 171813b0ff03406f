/* All names of the driver for cuda_standin.c: functions that return 0, each at its own address. A
 * second function for each, other_<name>, is what cuGetProcAddress may give instead. */
#define EBB_CUDA_NAME(name)                                                                        \
    __asm__(".weak " #name "\n.type " #name ", @function\n.balign 16\n" #name                      \
            ":\nxorl %eax, %eax\nret\n.size " #name ", . - " #name "\n"                            \
            ".globl other_" #name "\n.type other_" #name ", @function\n.balign 16\nother_" #name   \
            ":\nxorl %eax, %eax\nret\n.size other_" #name ", . - other_" #name "\n");
__asm__(".text\n");
#include "../../shim/cuda/names.def"
