/* SPDX-License-Identifier: Apache-2.0 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "fuzz.h"
#include "topology/start/preflight.h"

/* What tasks tell each other in a preflight: where they take messages, and what
 * they have measured. */

enum { WORLD = 5, NODES = 3 };

static void check_gpu(const struct plait_preflight_gpu *gpu)
{
    if (gpu->state < 0 || gpu->state >= PLAIT_PREFLIGHT_GPU_STATES ||
        !isfinite(gpu->product) || gpu->wide < 0 ||
        gpu->wide >= 1 << PLAIT_PREFLIGHT_RINGS)
        __builtin_trap();
    for (int i = 0; i < PLAIT_PREFLIGHT_RINGS; i++)
        if (!isfinite(gpu->ring[i]) || gpu->ring[i] < 0)
            __builtin_trap();
    for (const char *at = gpu->note; *at; at++)
        if (*at < ' ' || *at > '~' || strchr(";|", *at))
            __builtin_trap();
}

static void check_report(const struct plait_preflight_report *r)
{
    if (r->node_rank != 1 || r->nedges < 0 ||
        r->nedges > PLAIT_PREFLIGHT_EDGES || !isfinite(r->product) ||
        !isfinite(r->memory) || !isfinite(r->nic) || !isfinite(r->others) ||
        !*r->node)
        __builtin_trap();
    for (int i = 0; i < r->nedges; i++)
        if (r->edge[i].to < 0 || r->edge[i].to >= WORLD ||
            !isfinite(r->edge[i].rate))
            __builtin_trap();
    for (const char *at = r->other; *at; at++)
        if (*at < ' ' || *at > '~')
            __builtin_trap();
    for (const char *at = r->faults; *at; at++)
        if (*at < ' ' || *at > '~' || strchr(";|", *at))
            __builtin_trap();
    check_gpu(&r->gpu);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct plait_preflight_report report;
    struct plait_preflight_contact c;
    char *text = malloc(size + 1);
    int n;

    if (!text)
        return 0;
    memcpy(text, data, size);
    text[size] = '\0';
    n = plait_preflight_read_contact(text, NODES, &c);
    if (n == 0 || n > (int)strlen(text) ||
        (n > 0 && (c.node_rank < 0 || c.node_rank >= NODES || c.port < 1 ||
                   c.port > 65535 || !*c.host)))
        __builtin_trap();
    if (plait_preflight_read_report(text, WORLD, 1, &report) == 0)
        check_report(&report);
    free(text);
    return 0;
}
