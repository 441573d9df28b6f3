/* SPDX-License-Identifier: Apache-2.0 */
/* ZeRO 3 prepares weights in the middle of a pass. Where that fails for want of
 * memory, the step fails, and uses no weight that is not there. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "kernels/kernels.h"
#include "model_util.h"
#include "runtime/comm/comm.h"
#include "runtime/train/step.h"
#include "tap.h"
#include "temp_path.h"

enum { TOKENS = 4096 };

static char data[TEMP_PATH];
static struct plait_part data_part = {.path = data, .weight = 1};
static int made, fails_at; /* weights made; the one that fails, 0: none */

static struct plait_weight *create_weight(struct plait_device *dev,
                                          const struct plait_weight_data *d)
{
    if (++made == fails_at)
        return NULL;
    return plait_ops_cpu()->weight_create(dev, d);
}

static void configure(struct plait_job_config *c)
{
    small_config(c, PLAIT_LLAMA);
    c->model.layers = 1;
    c->parallel.zero = 3;
    c->parallel.bucket_mib = 0.01;
    c->train.precision = PLAIT_FP32;
    c->train.global_batch = 2;
    c->train.steps = 1;
    c->optim.lr = 1e-3;
    c->optim.betas[0] = 0.9;
    c->optim.betas[1] = 0.95;
    c->optim.eps = 1e-8;
    c->optim.clip = 1;
    c->lr.schedule = PLAIT_LR_CONSTANT;
    c->data.train = (struct plait_parts){1, &data_part};
    c->data.format = PLAIT_DATA_LLMC;
}

/* One step; the weight number `fails` cannot be made. What the step returns;
 * 1: the job could not be set up. */
static int run_step(struct plait_comm *self, int fails)
{
    struct plait_ops ops = *plait_ops_cpu();
    struct plait_device *dev = ops.device_create(0, 1);
    struct plait_error err = {""};
    struct plait_layout layout;
    struct plait_job_config config;
    struct plait_step_result r;
    struct plait_trainer *t = NULL;
    struct plait_mesh *mesh;
    int rc = 1;

    ops.weight_create = create_weight;
    made = 0;
    fails_at = fails;
    configure(&config);
    plait_layout_init(&layout);
    for (int i = 0; i < PLAIT_NAXES; i++)
        layout.size[i] = 1;
    mesh = plait_mesh_create(&ops, dev, self, &layout, &err);
    if (mesh)
        t = plait_trainer_create(&config, mesh, &err);
    if (t && plait_optim_init(plait_trainer_optim(t), 1, &err) == 0 &&
        plait_trainer_open_data(t, &err) == 0)
        rc = plait_trainer_step(t, 0, 0, &r, &err);
    if (rc == 1)
        diag("%s", err.text);
    plait_trainer_destroy(t);
    plait_mesh_destroy(mesh);
    ops.device_destroy(dev);
    return rc;
}

/* llm.c's format: 256 int32 of header, tokens of 16 bits. */
static void write_tokens(void)
{
    int32_t head[256] = {20240520, 1, TOKENS};
    uint16_t tokens[TOKENS];
    int fd = mkstemp(temp_path(data, "zero-memory"));

    for (int i = 0; i < TOKENS; i++)
        tokens[i] = (uint16_t)((i * i * 7 + i / 3) % 259);
    if (fd < 0 || write(fd, head, sizeof(head)) != sizeof(head) ||
        write(fd, tokens, sizeof(tokens)) != sizeof(tokens))
        exit(1);
    close(fd);
}

int main(void)
{
    struct plait_error err = {""};
    struct plait_comm *self =
        plait_comm_create(PLAIT_COMM_SELF, plait_ops_cpu(), NULL, NULL, &err);
    int weights, bad = 0;

    write_tokens();
    ok(self && run_step(self, 0) == 0, "a step with memory");
    weights = made;
    ok(weights > 3, "makes %d weights in its passes", weights);
    for (int i = 1; i <= weights; i++)
        bad += run_step(self, i) != -1;
    ok(bad == 0, "where any of them fails, the step fails and the process "
                 "lives");
    unlink(data);
    plait_comm_destroy(self);
    return done_testing();
}
