/* SPDX-License-Identifier: Apache-2.0 */
/* Cooperative threads. A switch saves the registers that a function call must
 * preserve, which takes a few nanoseconds on x86-64; elsewhere the C library
 * switches contexts. */
#include <string.h>

#include "machine.h"

#ifdef __x86_64__

__asm__(".text\n"
        ".globl emu_fibre_switch\n"
        ".hidden emu_fibre_switch\n"
        ".type emu_fibre_switch, @function\n"
        "emu_fibre_switch:\n"
        "    pushq %rbp\n"
        "    pushq %rbx\n"
        "    pushq %r12\n"
        "    pushq %r13\n"
        "    pushq %r14\n"
        "    pushq %r15\n"
        "    movq %rsp, (%rdi)\n"
        "    movq %rsi, %rsp\n"
        "    popq %r15\n"
        "    popq %r14\n"
        "    popq %r13\n"
        "    popq %r12\n"
        "    popq %rbx\n"
        "    popq %rbp\n"
        "    ret\n"
        ".size emu_fibre_switch, . - emu_fibre_switch\n");

void *emu_fibre_new(void *stack, size_t bytes, void (*entry)(void))
{
    uintptr_t top = ((uintptr_t)stack + bytes) & ~(uintptr_t)15;
    void **sp = (void **)top;

    *--sp = NULL; /* entry's return address; it never returns */
    *--sp = (void *)(uintptr_t)entry;
    for (int i = 0; i < 6; i++)
        *--sp = NULL;
    return sp;
}

#else

#include <ucontext.h>

/* sp points at a context at the bottom of the thread's stack; the host's
 * context is static. */
static ucontext_t host;

void *emu_fibre_new(void *stack, size_t bytes, void (*entry)(void))
{
    ucontext_t *context = stack;

    getcontext(context);
    context->uc_stack.ss_sp = context + 1;
    context->uc_stack.ss_size = bytes - sizeof(*context);
    context->uc_link = NULL;
    makecontext(context, entry, 0);
    return context;
}

void emu_fibre_switch(void **from, void *to)
{
    ucontext_t *mine = *from != NULL ? *from : &host;

    *from = mine;
    swapcontext(mine, to);
}

#endif
