/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "kernels/kernels.h"
#include "runtime/train/step.h"
#include "tap.h"
#include "temp_path.h"

/* llm.c's ten steps from OpenAI's GPT-2 124M on one repeated 4 x 64 batch.
 * Weights and batch are llm.c's files gpt2_124M.bin and
 * gpt2_124M_debug_state.bin in $PLAIT_GPT2_DIR; the expected losses are
 * llm.c's. */

#define STEPS 10
#define TOLERANCE 1e-2 /* llm.c's: it decays all weights, Plait matrices */

static const double published[STEPS] = {5.270007, 4.059707, 3.375123, 2.800783,
                                        2.315382, 1.849029, 1.394656, 0.999147,
                                        0.624080, 0.376511};

enum { MAGIC, VERSION, SEQ_LEN, VOCAB, LAYERS, HEADS, HIDDEN, VOCAB_PADDED };

/* One array of the weights file: a row of `each` floats per layer. */
struct array {
    const char *name; /* Plait's name, after "layers.N." if per_layer */
    int per_layer;
    size_t each;
};

static int give_up(const char *what, const char *why)
{
    printf("Bail out! %s: %s\n", what, why);
    return 1;
}

static FILE *open_file(const char *dir, const char *name, int magic,
                       int version, int32_t header[256])
{
    char path[4096];
    FILE *f;

    snprintf(path, sizeof(path), "%s/%s", dir, name);
    f = fopen(path, "rb");
    if (f && (fread(header, sizeof(*header), 256, f) != 256 ||
              header[MAGIC] != magic || header[VERSION] != version)) {
        fclose(f);
        errno = EINVAL;
        return NULL;
    }
    return f;
}

/* The batch as a token file: inputs and targets overlap by one. */
static int write_tokens(FILE *state, const int32_t *header, const char *path)
{
    int n = header[2] * header[3];
    int32_t head[256] = {20240520, 1, n + 1};
    int32_t *ids = calloc(2 * (size_t)n, sizeof(*ids));
    FILE *out = fopen(path, "wb");
    int rc = -1;

    if (ids && out && fread(ids, sizeof(*ids), 2 * n, state) == 2 * (size_t)n) {
        fwrite(head, sizeof(head), 1, out);
        for (int i = 0; i <= n; i++) {
            uint16_t id = i < n ? ids[i] : ids[2 * n - 1];

            fwrite(&id, sizeof(id), 1, out);
        }
        rc = ferror(out) ? -1 : 0;
    }
    if (out && fclose(out) != 0)
        rc = -1;
    free(ids);
    return rc;
}

static int put(struct plait_trainer *t, struct plait_mesh *mesh,
               const char *name, const float *values, size_t n)
{
    const struct plait_optim_slice *s;
    int count = plait_optim_slices(plait_trainer_optim(t), &s);

    for (int i = 0; i < count; i++)
        if (strcmp(s[i].tensor->name, name) == 0)
            return mesh->ops->to_device(mesh->q, s[i].master, values,
                                        (n < s[i].count ? n : s[i].count) *
                                            sizeof(*values));
    return -1;
}

/* llm.c keeps q, k and v in one array; Plait has three tensors. */
static int put_row(struct plait_trainer *t, struct plait_mesh *mesh,
                   const char *name, const float *row, size_t each)
{
    static const char part[] = "qkv";
    char one[128];
    const char *star = strchr(name, '*');

    if (!star)
        return put(t, mesh, name, row, each);
    for (int i = 0; i < 3; i++) {
        snprintf(one, sizeof(one), "%.*s%c%s", (int)(star - name), name,
                 part[i], star + 1);
        if (put(t, mesh, one, row + i * (each / 3), each / 3) < 0)
            return -1;
    }
    return 0;
}

static int load_weights(struct plait_trainer *t, struct plait_mesh *mesh,
                        FILE *f, const int32_t *h)
{
    size_t C = h[HIDDEN];
    const struct array arrays[] = {
        {"embedding.weight", 0, h[VOCAB_PADDED] * C},
        {"position.weight", 0, h[SEQ_LEN] * C},
        {"attention_norm.weight", 1, C},
        {"attention_norm.bias", 1, C},
        {"attention.*.weight", 1, 3 * C * C},
        {"attention.*.bias", 1, 3 * C},
        {"attention.out.weight", 1, C * C},
        {"attention.out.bias", 1, C},
        {"mlp_norm.weight", 1, C},
        {"mlp_norm.bias", 1, C},
        {"mlp.up.weight", 1, 4 * C * C},
        {"mlp.up.bias", 1, 4 * C},
        {"mlp.down.weight", 1, 4 * C * C},
        {"mlp.down.bias", 1, C},
        {"norm.weight", 0, C},
        {"norm.bias", 0, C},
    };
    float *row = malloc(arrays[0].each * sizeof(*row));
    char name[128];
    int rc = row ? 0 : -1;

    for (size_t i = 0; i < sizeof(arrays) / sizeof(*arrays) && !rc; i++)
        for (int l = 0; l < (arrays[i].per_layer ? h[LAYERS] : 1) && !rc; l++) {
            if (arrays[i].per_layer)
                snprintf(name, sizeof(name), "layers.%d.%s", l, arrays[i].name);
            else
                snprintf(name, sizeof(name), "%s", arrays[i].name);
            rc = fread(row, sizeof(*row), arrays[i].each, f) == arrays[i].each
                     ? put_row(t, mesh, name, row, arrays[i].each)
                     : -1;
        }
    free(row);
    return rc;
}

static struct plait_job_config *make_config(const int32_t *h, const int32_t *b,
                                            const char *tokens,
                                            struct plait_error *err)
{
    char text[16][128];
    const char *set[16];
    int n = 0;

    snprintf(text[n++], 128, "model.layers=%d", h[LAYERS]);
    snprintf(text[n++], 128, "model.heads=%d", h[HEADS]);
    snprintf(text[n++], 128, "model.hidden=%d", h[HIDDEN]);
    snprintf(text[n++], 128, "model.vocab=%d", h[VOCAB]);
    snprintf(text[n++], 128, "model.seq_len=%d", b[3]);
    snprintf(text[n++], 128, "train.global_batch=%d", b[2]);
    snprintf(text[n++], 128, "train.micro_batch=%d", b[2]);
    snprintf(text[n++], 128, "train.steps=%d", STEPS);
    snprintf(text[n++], 128, "data.train=%.100s", tokens);
    snprintf(text[n++], 128, "optim.lr=1e-4");
    snprintf(text[n++], 128, "optim.betas=[0.9, 0.999]");
    snprintf(text[n++], 128, "optim.weight_decay=0.01");
    snprintf(text[n++], 128, "optim.clip=0");
    snprintf(text[n++], 128, "lr.schedule=constant");
    snprintf(text[n++], 128, "lr.warmup=0");
    snprintf(text[n++], 128, "parallel.dp=1");
    for (int i = 0; i < n; i++)
        set[i] = text[i];
    return plait_job_config_create(NULL, set, n, err);
}

static int run(FILE *weights, const int32_t *h, const int32_t *b,
               const char *tokens)
{
    const struct plait_ops *ops = plait_ops_cpu();
    struct plait_device *dev = ops->device_create(0, 0);
    struct plait_error err = {""};
    struct plait_layout layout;
    struct plait_job_config *config = make_config(h, b, tokens, &err);
    struct plait_step_result result;
    struct plait_mesh *mesh;
    struct plait_trainer *t;
    struct plait_comm *world;

    plait_layout_init(&layout);
    if (!config || !dev)
        return give_up("configuration", err.text);
    world = plait_comm_create(PLAIT_COMM_SELF, ops, dev, NULL, &err);
    mesh = world ? plait_mesh_create(ops, dev, world, &layout, &err) : NULL;
    t = mesh ? plait_trainer_create(config, mesh, &err) : NULL;
    if (!t || plait_trainer_open_data(t, &err) < 0)
        return give_up("trainer", err.text);
    if (load_weights(t, mesh, weights, h) < 0 ||
        plait_optim_refresh(plait_trainer_optim(t), &err) < 0)
        return give_up("weights", err.text);
    for (int i = 0; i < STEPS; i++) {
        if (plait_trainer_step(t, i, 0, &result, &err) < 0)
            return give_up("step", err.text);
        ok(fabs(result.loss - published[i]) <= TOLERANCE,
           "step %d: loss %.6f, published %.6f", i + 1, result.loss,
           published[i]);
    }
    plait_trainer_destroy(t);
    plait_mesh_destroy(mesh);
    plait_comm_destroy(world);
    ops->device_destroy(dev);
    plait_job_config_destroy(config);
    return done_testing();
}

int main(void)
{
    const char *dir = getenv("PLAIT_GPT2_DIR");
    char tokens[TEMP_PATH];
    int32_t h[256], b[256];
    FILE *weights, *state;
    int fd, rc;

    if (!dir)
        return skip_all("no GPT-2 weights: set PLAIT_GPT2_DIR to the folder "
                        "with llm.c's gpt2_124M.bin");
    weights = open_file(dir, "gpt2_124M.bin", 20240326, 3, h);
    state = open_file(dir, "gpt2_124M_debug_state.bin", 20240327, 2, b);
    if (!weights || !state)
        return give_up(dir, strerror(errno));
    fd = mkstemp(temp_path(tokens, "ten-steps"));
    if (fd < 0 || write_tokens(state, b, tokens) < 0)
        return give_up(tokens, strerror(errno));
    close(fd);
    rc = run(weights, h, b, tokens);
    unlink(tokens);
    fclose(weights);
    fclose(state);
    return rc;
}
