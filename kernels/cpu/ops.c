/* SPDX-License-Identifier: Apache-2.0 */
/* The table of the CPU's operations: the reference's, replaced by those of the
 * best class of instructions that this processor has. */
#include "config.h"

#include <pthread.h>

#include "kernels/cpu/cpu.h"
#include "kernels/cpu/isa.h"
#include "kernels/ref/ref.h"

static struct {
    pthread_once_t once;
    struct plait_ops ops;
} cpu = {
    .once = PTHREAD_ONCE_INIT,
    .ops =
        {
            .name = "cpu",
            .device_create = host_device_create,
            .device_destroy = host_device_destroy,
            .alloc = host_alloc,
            .free = host_free,
            .memory = host_memory,
            .pinned_alloc = host_pinned_alloc,
            .pinned_free = host_pinned_free,
            .pinned_memory = host_pinned_memory,
            .queue_create = cpu_queue_create,
            .queue_destroy = cpu_queue_destroy,
            .queue_native = host_queue_native,
            .queue_sync = host_queue_sync,
            .event_create = host_event_create,
            .event_destroy = host_event_destroy,
            .event_record = host_event_record,
            .event_wait = host_event_wait,
            .event_sync = host_event_sync,
            .event_elapsed = host_event_elapsed,
            .weight_create = host_weight_create,
            .weight_destroy = host_weight_destroy,
            .weight_changed = host_weight_changed,
            .grouped_forward = host_grouped_forward,
            .grouped_backward_input = host_grouped_backward_input,
            .grouped_backward_weight = host_grouped_backward_weight,
            .has_fp8 = host_has_fp8,
            .clip_scale = host_clip_scale,
            /* Once in hundreds of steps: the reference code is fast enough. */
            .e5m2_encode = ref_e5m2_encode,
            .e5m2_decode = ref_e5m2_decode,
            /* Few numbers per token: the reference code is fast enough. */
            .route_forward = ref_route_forward,
            .route_load = ref_route_load,
            .route_backward = ref_route_backward,
            .route_limit = ref_route_limit,
            .route_sort = ref_route_sort,
        },
};

static void fill(void)
{
    enum cpu_isa isa = cpu_isa();

    cpu_fill_linear(&cpu.ops);
    switch (isa) {
#ifdef HAVE_X86_VECTORS
    case CPU_AMX:
        cpu_fill_avx512bf16(&cpu.ops);
        cpu_fill_linear(&cpu.ops); /* uses the matrix unit */
        break;
#ifdef HAVE_X86_TILES
    case CPU_AMX_OWN:
        cpu_fill_avx512bf16(&cpu.ops);
        cpu_fill_linear(&cpu.ops);
        cpu_fill_tiles_amx(&cpu.ops);
        break;
#endif
    case CPU_AVX512BF16:
        cpu_fill_avx512bf16(&cpu.ops);
        cpu_fill_bf16_attention(&cpu.ops);
        break;
    case CPU_AVX512:
        cpu_fill_avx512(&cpu.ops);
        break;
    case CPU_AVX2:
        cpu_fill_avx2(&cpu.ops);
        break;
#endif
#ifdef HAVE_ARM_VECTORS
    case CPU_SVE:
        cpu_fill_sve(&cpu.ops);
        break;
#endif
    default: /* CPU_NEON too */
        cpu_fill_base(&cpu.ops);
    }
}

const struct plait_ops *plait_ops_cpu(void)
{
    pthread_once(&cpu.once, fill);
    return &cpu.ops;
}
