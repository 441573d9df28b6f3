/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLAIT_KERNELS_CPU_ISA_H
#define PLAIT_KERNELS_CPU_ISA_H

/* The instruction sets that kernels/cpu is compiled for; a processor that has
 * one has those before it of its family. */
enum cpu_isa {
    CPU_BASE, /* what the compiler takes without being told: SSE2 on x86 */
    CPU_AVX2, /* and FMA and F16C: no processor has it without */
    CPU_AVX512,
    CPU_AVX512BF16,
    CPU_AMX,
    CPU_NEON, /* 64-bit Arm's own; base is the same there */
    CPU_SVE,  /* with vectors of 256 bits: those of 128 are NEON's */
    CPU_NISA
};

extern const char *const cpu_isa_names[CPU_NISA];

/* The best that processor and system have. */
enum cpu_isa cpu_isa_best(void);
/* What is computed with: that which PLAIT_CPU_ISA names or, where there is
 * none such, the best. The matrix library is then told to use no more. */
enum cpu_isa cpu_isa(void);

#endif
