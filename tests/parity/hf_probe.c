/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/kernels.h"
#include "runtime/checkpoint/checkpoint.h"
#include "runtime/parallel/decoder.h"
#include "runtime/parallel/shard.h"
#include "runtime/train/inference.h"
#include "runtime/train/session.h"

/* usage: hf_probe CONFIG.yaml DIR TOKENS GREEDY OUT [KEY=VALUE]...
 * Computes with a model, for hf_check.py: loads the weights of DIR and writes
 * to OUT, for the tokens in the text file TOKENS, the summed loss as double;
 * the logits after a third, two thirds and all of them, fp32; then the GREEDY
 * most likely tokens that follow, int32. */

static int32_t tokens[65536], targets[65536];
static int length;

static void give_up(const char *what, const struct plait_error *err)
{
    fprintf(stderr, "hf_probe: %s: %s\n", what, err ? err->text : "failed");
    exit(1);
}

static void read_tokens(const char *path)
{
    FILE *file = fopen(path, "r");

    while (file && length < 65535 && fscanf(file, "%d", &tokens[length]) == 1)
        length++;
    if (!file || length < 3)
        give_up(path, NULL);
    fclose(file);
    memset(targets, -1, sizeof(targets));
}

static struct plait_inference *open_model(struct plait_session *s,
                                          const char *dir)
{
    struct plait_error err = {""};
    struct plait_inference *inf =
        plait_inference_create(s->config, s->mesh, &err);

    if (!inf)
        give_up("model", &err);
    if (plait_checkpoint_start(dir, plait_inference_shards(inf), NULL, &err) <
            0 ||
        plait_shards_gather_weights(plait_inference_shards(inf), &err) < 0)
        give_up(dir, &err);
    return inf;
}

static double sum_loss(struct plait_session *s, struct plait_inference *inf)
{
    struct plait_error err = {""};
    struct plait_pipeline *pipe = plait_inference_pipeline(inf, &err);
    const struct plait_ops *ops = s->mesh->ops;
    double *loss = ops->alloc(s->mesh->dev, sizeof(*loss)), sum;
    struct plait_batch b = {.batch = 1,
                            .seq_len = length - 1,
                            .tokens = tokens,
                            .targets = tokens + 1,
                            .loss_scale = 1};

    if (!loss || !pipe || plait_pipeline_eval(pipe, &b, 1, loss) < 0 ||
        ops->to_host(s->mesh->q, &sum, loss, sizeof(sum)) < 0)
        give_up("loss", NULL);
    ops->free(s->mesh->dev, loss);
    return sum;
}

/* The logits after tokens `from` to `n`. */
static void make_logits(struct plait_decoder *decoder, int from, int n,
                        float *logits)
{
    const struct plait_addition add = {0, from, n - from, true};
    const struct plait_additions added = {1, &add, tokens + from};

    if (plait_decoder_extend(decoder, &added, logits) < 0)
        give_up("logits", NULL);
}

static int32_t likeliest(const float *logits, int n)
{
    int best = 0;

    for (int i = 1; i < n; i++)
        if (logits[i] > logits[best])
            best = i;
    return best;
}

/* The rank that has the logits and writes them. */
static int writer(const struct plait_mesh *mesh)
{
    struct plait_coord at = {{0}};

    at.at[PLAIT_PP] = mesh->layout.size[PLAIT_PP] - 1;
    return plait_layout_rank(&mesh->layout, &at);
}

static void probe(struct plait_session *s, struct plait_inference *inf,
                  int greedy, FILE *out)
{
    int vocab = s->config->model.vocab, root = writer(s->mesh);
    float *logits = calloc(vocab, sizeof(*logits));
    double loss = sum_loss(s, inf);
    struct plait_error err = {""};
    struct plait_decoder *decoder = plait_decoder_create(
        plait_inference_model(inf), 1, length + greedy, length, &err);

    if (!decoder)
        give_up("decoder", &err);
    fwrite(&loss, sizeof(loss), 1, out);
    for (int i = 1; i <= 3; i++) {
        make_logits(decoder, length * (i - 1) / 3, length * i / 3, logits);
        fwrite(logits, sizeof(*logits), vocab, out);
    }
    for (int i = 0; i < greedy; i++) {
        int32_t next = likeliest(logits, vocab);

        plait_comm_host_broadcast(s->mesh->world, &next, sizeof(next), root);
        fwrite(&next, sizeof(next), 1, out);
        tokens[length++] = next;
        if (i < greedy - 1)
            make_logits(decoder, length - 1, length, logits);
    }
    plait_decoder_destroy(decoder);
    free(logits);
}

int main(int argc, char **argv)
{
    struct plait_train_args args = {.resume = "none", .device = "cpu"};
    struct plait_error err = {""};
    struct plait_inference *inf;
    struct plait_session s;
    FILE *out;

    if (argc < 6) {
        fprintf(stderr, "usage: hf_probe CONFIG DIR TOKENS GREEDY OUT "
                        "[KEY=VALUE]...\n");
        return 2;
    }
    args.config = argv[1];
    args.set = (const char **)argv + 6;
    args.nset = argc - 6;
    read_tokens(argv[3]);
    if (plait_session_open(&s, &args, &err) < 0)
        give_up("session", &err);
    inf = open_model(&s, argv[2]);
    out = fopen(s.mesh->rank == writer(s.mesh) ? argv[5] : "/dev/null", "w");
    if (!out)
        give_up(argv[5], NULL);
    probe(&s, inf, atoi(argv[4]), out);
    if (fclose(out) != 0)
        give_up(argv[5], NULL);
    plait_inference_destroy(inf);
    plait_session_close(&s);
    return 0;
}
