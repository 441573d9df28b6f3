/* SPDX-License-Identifier: Apache-2.0 */
/* How a preflight judges GPUs and NCCL's rings, by what plait-probe has timed.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tap.h"
#include "topology/start/preflight.h"

enum { RANKS = 6 };

static const struct plait_preflight_bound none;

/* Two GPUs a node, with a tp ring in the node and a dp ring over all of them.
 */
static void fill(struct plait_preflight_report *reports)
{
    memset(reports, 0, RANKS * sizeof(*reports));
    for (int i = 0; i < RANKS; i++) {
        struct plait_preflight_report *r = &reports[i];

        snprintf(r->node, sizeof(r->node), "n%d", i / 2);
        r->node_rank = i / 2;
        r->product = 2e9;
        r->memory = 4e9;
        r->gpu = (struct plait_preflight_gpu){
            .state = PLAIT_PREFLIGHT_GPU_TIMED,
            .product = 7e14 * (1 - 0.02 * i),
            .ring = {3e11, 0, 0, i % 2 ? 5e10 : 4.5e10},
            .wide = 8,
        };
        snprintf(r->gpu.busid, sizeof(r->gpu.busid), "0000:0%d:00.0",
                 5 + i % 2);
    }
}

/* The line of the verdict is `line`, and that of the notes `notes`. */
static void judged(const char *what, const struct plait_preflight_report *r,
                   const char *line, const char *notes)
{
    struct plait_preflight_node nodes[RANKS];
    char text[1024], said[512];
    int n = plait_preflight_judge_nodes(r, RANKS, &none, nodes);

    plait_preflight_list(nodes, n, text, sizeof(text));
    plait_preflight_list_notes(nodes, n, said, sizeof(said));
    ok(strcmp(text, line) == 0 && strcmp(said, notes) == 0 && !nodes[1].slow,
       "%s: \"%s\", \"%s\"", what, text, said);
}

static void check_products(void)
{
    struct plait_preflight_report r[RANKS];

    fill(r);
    judged("sound GPUs", r, "", "");
    r[3].gpu.product = 3.36e14;
    judged("a slow GPU is named", r,
           "n1: GPU 0000:06:00.0: a product at 0.50 of the median (336 of 672 "
           "TFLOP/s)",
           "");
    r[2].gpu.product = 4e14;
    judged("two of a node are one text", r,
           "n1: GPU 0000:06:00.0 and 1 more of its GPUs: a product at 0.52 of "
           "the median (336 of 644 TFLOP/s)",
           "");
    fill(r);
    for (int i = 0; i < RANKS; i++)
        r[i].gpu.product = 1e14;
    judged("GPUs that are slow alike are not", r, "", "");
    for (int i = 0; i < RANKS; i++)
        r[i].gpu.type = i < 4 ? 1 : 2;
    r[4].gpu.product = r[5].gpu.product = 4e13;
    judged("... nor are those of another type", r, "", "");
    r[3].gpu.product = 3e13;
    judged("... among which slow ones are found", r,
           "n1: GPU 0000:06:00.0: a product at 0.30 of the median (30 of 100 "
           "TFLOP/s)",
           "");
    fill(r);
    r[2].gpu = (struct plait_preflight_gpu){.state = PLAIT_PREFLIGHT_GPU_STUCK,
                                            .busid = "0000:05:00.0"};
    judged("one that does not end a product", r,
           "n1: GPU 0000:05:00.0: it has not ended a product", "");
    r[2].gpu.state = PLAIT_PREFLIGHT_GPU_UNUSABLE;
    strcpy(r[2].gpu.note, "initialization error");
    judged("one that CUDA cannot use, and others it can", r,
           "n1: GPU 0000:05:00.0: CUDA cannot use it: initialization error",
           "");
    for (int i = 0; i < RANKS; i++)
        r[i].gpu = r[2].gpu;
    judged("... or none: that is no node's fault", r, "",
           "n0: GPU 0000:05:00.0: CUDA cannot use it: initialization error; "
           "and of 2 more nodes");
}

static void check_rings(void)
{
    struct plait_preflight_report r[RANKS];

    fill(r);
    r[4].gpu.ring[0] = r[5].gpu.ring[0] = 6e10;
    judged("a slow ring in a node is the node's", r,
           "n2: its tp ring is at 0.20 of the median (60 of 300 GB/s)", "");
    r[1].gpu.ring[0] = r[3].gpu.ring[0] = r[5].gpu.ring[0] = 6e10;
    judged("groups of an axis may have different links in each node", r, "",
           "");
    for (int i = 0; i < RANKS; i++) {
        r[i].gpu.wide = 0;
        r[i].gpu.ring[0] = i < 2 ? i ? 3e11 : 2e10 : 0;
        r[i].gpu.ring[3] = 0;
    }
    judged("with rings in one node nothing is compared", r, "", "");
    fill(r);
    r[0].gpu.ring[3] = r[2].gpu.ring[3] = r[4].gpu.ring[3] = 1e10;
    r[1].gpu.ring[3] = r[3].gpu.ring[3] = r[5].gpu.ring[3] = 5e10;
    judged("one over several nodes is a note", r, "",
           "n0: a dp ring over several nodes is at 0.20 of the median (10 of "
           "50 GB/s); and of 2 more nodes");
    fill(r);
    for (int i = 0; i < RANKS; i++) {
        r[i].gpu.ring[0] = r[i].gpu.ring[3] = 0;
        strcpy(r[i].gpu.note, "NCCL has not connected the ranks in 6 s");
    }
    judged("that NCCL is late is a note", r, "",
           "n0: NCCL has not connected the ranks in 6 s; and of 2 more nodes");
}

static void check_report(void)
{
    struct plait_preflight_report r[RANKS];
    struct plait_preflight_node nodes[RANKS];
    char *text = NULL;
    size_t size;
    FILE *file = open_memstream(&text, &size);
    int n;

    fill(r);
    strcpy(r[2].gpu.note, "late");
    n = plait_preflight_judge_nodes(r, RANKS, &none, nodes);
    plait_preflight_print(nodes, n, "7.0", file);
    fclose(file);
    ok(strstr(text, "\"node\": \"n1\"") &&
           strstr(text, "\"gpu_tflops\": 658, \"rings_gbs\": {\"tp\": 300, "
                        "\"dp\": 45}, \"notes\": \"late\", \"faults\""),
       "the report has them: %s", text);
    free(text);
}

int main(void)
{
    check_products();
    check_rings();
    check_report();
    return done_testing();
}
