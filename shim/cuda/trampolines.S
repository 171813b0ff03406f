/* Every name that libcuda.so.1 exports, for x86-64: names.def as code.
 *
 * Each function jumps through its slot. The slot first leads to a stub that looks the real function
 * up, once, and then to the real function. The names are weak: a hook of the same name replaces its
 * trampoline when the library is linked. All registers that can carry arguments keep their values;
 * no function of the driver takes vectors wider than 16 bytes. */
    .section .note.GNU-stack, "", @progbits

    .section .rodata.str1.1, "aMS", @progbits, 1
    .section .data.rel.ro.ebb_names, "aw", @progbits
    .balign 8
    .globl ebb__door_names
    .hidden ebb__door_names
ebb__door_names:
    .section .data.rel.ebb_slots, "aw", @progbits
    .balign 8
    .globl ebb__door_slots
    .hidden ebb__door_slots
ebb__door_slots:

    .text
    .set ebb_index, 0

    .macro trampoline name
    .balign 16
    .weak \name
    .type \name, @function
\name:
    endbr64
    jmp *.Lslot_\name(%rip)
    .size \name, . - \name
.Llazy_\name:
    endbr64
    pushq $ebb_index
    jmp .Llook_up
    .section .data.rel.ebb_slots
.Lslot_\name:
    .quad .Llazy_\name
    .section .rodata.str1.1
.Lname_\name:
    .string "\name"
    .section .data.rel.ro.ebb_names
    .quad .Lname_\name
    .text
    .set ebb_index, ebb_index + 1
    .endm

/* On the stack: the index of the name, then the address to which the real function returns. */
    .balign 16
    .type .Llook_up, @function
.Llook_up:
    .cfi_startproc
    .cfi_def_cfa_offset 16
    pushq %rax
    .cfi_adjust_cfa_offset 8
    pushq %rdi
    .cfi_adjust_cfa_offset 8
    pushq %rsi
    .cfi_adjust_cfa_offset 8
    pushq %rdx
    .cfi_adjust_cfa_offset 8
    pushq %rcx
    .cfi_adjust_cfa_offset 8
    pushq %r8
    .cfi_adjust_cfa_offset 8
    pushq %r9
    .cfi_adjust_cfa_offset 8
    pushq %r10
    .cfi_adjust_cfa_offset 8
    subq $128, %rsp
    .cfi_adjust_cfa_offset 128
    movups %xmm0, 0(%rsp)
    movups %xmm1, 16(%rsp)
    movups %xmm2, 32(%rsp)
    movups %xmm3, 48(%rsp)
    movups %xmm4, 64(%rsp)
    movups %xmm5, 80(%rsp)
    movups %xmm6, 96(%rsp)
    movups %xmm7, 112(%rsp)
    movq 192(%rsp), %rdi
    call ebb__door_look_up
    movq %rax, %r11
    movups 0(%rsp), %xmm0
    movups 16(%rsp), %xmm1
    movups 32(%rsp), %xmm2
    movups 48(%rsp), %xmm3
    movups 64(%rsp), %xmm4
    movups 80(%rsp), %xmm5
    movups 96(%rsp), %xmm6
    movups 112(%rsp), %xmm7
    addq $128, %rsp
    .cfi_adjust_cfa_offset -128
    popq %r10
    .cfi_adjust_cfa_offset -8
    popq %r9
    .cfi_adjust_cfa_offset -8
    popq %r8
    .cfi_adjust_cfa_offset -8
    popq %rcx
    .cfi_adjust_cfa_offset -8
    popq %rdx
    .cfi_adjust_cfa_offset -8
    popq %rsi
    .cfi_adjust_cfa_offset -8
    popq %rdi
    .cfi_adjust_cfa_offset -8
    popq %rax
    .cfi_adjust_cfa_offset -8
    addq $8, %rsp
    .cfi_adjust_cfa_offset -8
    jmp *%r11
    .cfi_endproc

#define EBB_CUDA_NAME(name) trampoline name
#include "names.def"

    .section .data.rel.ro.ebb_names
    .quad 0
