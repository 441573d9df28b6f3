/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "kernels/cpu/isa.h"

#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#ifdef HAVE_X86_VECTORS
#include <cpuid.h>
#include <oneapi/dnnl/dnnl.h>
#include <sys/syscall.h>
#include <unistd.h>
#endif
#ifdef __aarch64__
#include <asm/hwcap.h>
#include <sys/auxv.h>
#include <sys/prctl.h>
#endif

#include "kernels/kernels.h"

/* Whether our own products by the matrix unit are compiled. */
#ifdef HAVE_X86_TILES
#define HAS_TILES 1
#else
#define HAS_TILES 0
#endif

static const char *const names[CPU_NISA] = {
    "base", "avx2", "avx512", "avx512bf16", "amx", "amxown", "neon", "sve"};

static struct {
    pthread_once_t once;
    enum cpu_isa isa;
    char why[200]; /* empty: no error */
} chosen = {.once = PTHREAD_ONCE_INIT};

#ifdef HAVE_X86_VECTORS
/* Leaf 7, edx: bit 22 is amx-bf16, 24 amx-tile; not all compilers have names
 * for them. XCR0, bits 17 and 18: the system saves the tile registers. */
static int has_amx_bf16(void)
{
    const unsigned instructions = 1u << 22 | 1u << 24, state = 3u << 17;
    unsigned eax, ebx, ecx, edx;

    if (!__get_cpuid(1, &eax, &ebx, &ecx, &edx) || !(ecx & bit_OSXSAVE))
        return 0;
    if (!__get_cpuid_count(7, 0, &eax, &ebx, &ecx, &edx) ||
        (edx & instructions) != instructions)
        return 0;
    __asm__ volatile("xgetbv" : "=a"(eax), "=d"(edx) : "c"(0));
    return (eax & state) == state;
}

/* The best one that both processor and system support. */
static enum cpu_isa best_isa(void)
{
    __builtin_cpu_init();
    if (!__builtin_cpu_supports("avx2") || !__builtin_cpu_supports("fma"))
        return CPU_BASE;
    if (!__builtin_cpu_supports("avx512f") ||
        !__builtin_cpu_supports("avx512bw") ||
        !__builtin_cpu_supports("avx512dq") ||
        !__builtin_cpu_supports("avx512vl"))
        return CPU_AVX2;
    if (!__builtin_cpu_supports("avx512bf16"))
        return CPU_AVX512;
    return has_amx_bf16() ? CPU_AMX : CPU_AVX512BF16;
}

/* Call before anything is computed: the library does not change its choice
 * later. */
static void limit_library(enum cpu_isa isa)
{
    static const dnnl_cpu_isa_t most[CPU_NISA] = {
        [CPU_BASE] = dnnl_cpu_isa_sse41,
        [CPU_AVX2] = dnnl_cpu_isa_avx2,
        [CPU_AVX512] = dnnl_cpu_isa_avx512_core,
        [CPU_AVX512BF16] = dnnl_cpu_isa_avx512_core_bf16,
        [CPU_AMX] = (dnnl_cpu_isa_t)0, /* all; each release has its own name */
        [CPU_AMX_OWN] = (dnnl_cpu_isa_t)0,
    };

    dnnl_set_max_cpu_isa(most[isa]);
}
#else
#ifdef HAVE_ARM_VECTORS
/* Whether SVE vectors have this many bytes, for which the kernels are
 * compiled. */
static int has_sve_of(int bytes)
{
    int length = getauxval(AT_HWCAP) & HWCAP_SVE ? prctl(PR_SVE_GET_VL) : -1;

    return length >= 0 && (length & PR_SVE_VL_LEN_MASK) == bytes;
}
#endif

/* The best one that both processor and system support. */
static enum cpu_isa best_isa(void)
{
#ifdef HAVE_ARM_VECTORS
    if (has_sve_of(32))
        return CPU_SVE;
#endif
#ifdef __aarch64__
    return CPU_NEON;
#else
    return CPU_BASE;
#endif
}

static void limit_library(enum cpu_isa isa)
{
    (void)isa;
}
#endif

/* The index of a name, CPU_NISA if unknown. */
static int find_name(const char *name)
{
    int i = 0;

    while (i < CPU_NISA && strcmp(name, names[i]) != 0)
        i++;
    return i;
}

static int has_isa(enum cpu_isa best, enum cpu_isa isa)
{
    enum cpu_isa first = best >= CPU_NEON ? CPU_NEON : CPU_AVX2;

    if (isa == CPU_AMX_OWN)
        return best == CPU_AMX;
    return isa == CPU_BASE || (isa >= first && isa <= best);
}

static void choose(void)
{
    const char *wanted = getenv("PLAIT_CPU_ISA");
    enum cpu_isa best = best_isa();
    int isa;

    chosen.isa = best;
    if (wanted == NULL || *wanted == '\0')
        return;
    isa = find_name(wanted);
    if (isa == CPU_NISA) {
        snprintf(chosen.why, sizeof(chosen.why),
                 "PLAIT_CPU_ISA=%.40s: must be base, avx2, avx512, "
                 "avx512bf16, amx or amxown; on Arm base, neon or sve",
                 wanted);
        return;
    }
    if (!has_isa(best, isa)) {
        snprintf(chosen.why, sizeof(chosen.why),
                 "PLAIT_CPU_ISA=%s: this processor supports at most %s", wanted,
                 names[best]);
        return;
    }
    if (isa == CPU_AMX_OWN && !HAS_TILES) {
        snprintf(chosen.why, sizeof(chosen.why),
                 "PLAIT_CPU_ISA=%s: this build has no code for it: its "
                 "compiler did not know AMX; use amx",
                 wanted);
        return;
    }
    if (isa == CPU_AMX_OWN && !cpu_may_use_tiles()) {
        snprintf(chosen.why, sizeof(chosen.why),
                 "PLAIT_CPU_ISA=%s: the system does not let this process use "
                 "AMX (%s)",
                 wanted, strerror(errno));
        return;
    }
    chosen.isa = isa;
    limit_library(isa);
}

/* A process must ask, because the frames of signals become larger; oneDNN asks
 * by itself. */
int cpu_may_use_tiles(void)
{
#ifdef HAVE_X86_TILES
    enum { REQUEST = 0x1023, TILE_DATA = 18 }; /* of asm/prctl.h since 5.16 */

    if (best_isa() == CPU_AMX)
        return syscall(SYS_arch_prctl, REQUEST, TILE_DATA) == 0;
#endif
    errno = ENOSYS;
    return 0;
}

int cpu_prefetches_operands(void)
{
#ifdef __x86_64__
    __builtin_cpu_init();
    return !__builtin_cpu_is("intel");
#else
    return 1;
#endif
}

enum cpu_isa cpu_isa(void)
{
    pthread_once(&chosen.once, choose);
    return chosen.isa;
}

const char *plait_cpu_isa(const char **why)
{
    enum cpu_isa isa = cpu_isa();

    if (chosen.why[0] == '\0')
        return names[isa];
    if (why != NULL)
        *why = chosen.why;
    errno = EINVAL;
    return NULL;
}
