/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLAIT_KERNELS_CPU_ISA_H
#define PLAIT_KERNELS_CPU_ISA_H

/* The instruction sets that kernels/cpu is compiled for. A processor that has
 * one also has those before it in its family. */
enum cpu_isa {
    CPU_BASE, /* the compiler's default: SSE2 on x86 */
    CPU_AVX2, /* with FMA and F16C, which come with it */
    CPU_AVX512,
    CPU_AVX512BF16,
    CPU_AMX,     /* bf16 products of linear layers by oneDNN */
    CPU_AMX_OWN, /* the same by our own code */
    CPU_NEON,    /* every 64-bit Arm has it; there, base is the same */
    CPU_SVE,     /* with vectors of 256 bits; for 128 bits NEON is used */
    CPU_NISA
};

/* The one in use: what PLAIT_CPU_ISA names, or the best if that is unset or not
 * available. oneDNN is limited to the same. */
enum cpu_isa cpu_isa(void);

/* Whether our own products by the matrix unit can run here. Linux is asked to
 * let this process use the unit; if not, errno says why. */
int cpu_may_use_tiles(void);

/* Whether a matrix product should prefetch its operands. On AMD's cores they
 * are 1 to 7 % faster with it (Zen 5). On Intel's a prefetch holds one of the
 * 10 to 16 line fill buffers through which each cache line passes that is
 * loaded from L2: 5 to 10 % faster without (Skylake). */
int cpu_prefetches_operands(void);

#endif
