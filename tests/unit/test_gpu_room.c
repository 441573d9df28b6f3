/* SPDX-License-Identifier: Apache-2.0 */
/* What fits is asked of the rank's own GPU, on a node with different ones. */
#include <string.h>

#include "kernels/kernels.h"
#include "llama3_8b.h"
#include "runtime/train/precision.h"
#include "tap.h"

/* GPU 0 of the node, an A100; the rank has another one. */
static int first_gpu(int index, struct plait_gpu_facts *facts)
{
    memset(facts, 0, sizeof(*facts));
    facts->capability = index == 0 ? 80 : 89;
    strcpy(facts->attention, "own kernels");
    return 0;
}

int main(void)
{
    struct plait_ops ops = *plait_ops_ref();
    struct plait_mesh mesh = {.ops = &ops};
    struct plait_job_config c;
    struct plait_error err = {.text = ""};

    llama3_8b(&c);
    c.model.head_dim = 256;
    ok(plait_precision_room(&mesh, &c, PLAIT_WORK_TRAIN, &err) == 0,
       "cores have room %s", err.text);
    ops.gpu = 1;
    ops.gpu_facts = first_gpu;
    first_gpu(1, &mesh.facts);
    ok(plait_precision_room(&mesh, &c, PLAIT_WORK_TRAIN, &err) < 0 &&
           strstr(err.text, "(cuDNN has none") != NULL,
       "an L40S beside an A100: %s", err.text);
    mesh.facts.capability = 90;
    ok(plait_precision_room(&mesh, &c, PLAIT_WORK_TRAIN, &err) == 0,
       "an H100 %s", err.text);
    strcpy(mesh.facts.attention, "cuDNN 9.19.0");
    mesh.facts.capability = 89;
    ok(plait_precision_room(&mesh, &c, PLAIT_WORK_EVALUATE, &err) == 0,
       "an evaluation by cuDNN %s", err.text);
    return done_testing();
}
