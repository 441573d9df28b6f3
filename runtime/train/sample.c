/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "runtime/train/sample.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define TEMPERATURE 0.8 /* below 1: likely tokens more often */

int plait_sample_token(const float *logits, int n, double temperature, double u)
{
    double max = -INFINITY, sum = 0, at = 0;
    int i;

    for (i = 0; i < n; i++)
        max = fmax(max, logits[i]);
    for (i = 0; i < n; i++)
        sum += exp((logits[i] - max) / temperature);
    for (i = 0; i < n - 1; i++) {
        at += exp((logits[i] - max) / temperature) / sum;
        if (u < at)
            break;
    }
    return i;
}

/* SplitMix64 (Steele et al., OOPSLA 2014): number `i` of a seed, [0, 1). */
static double uniform_draw(uint64_t seed, uint64_t i)
{
    uint64_t z = seed + (i + 1) * 0x9e3779b97f4a7c15u;

    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
    z = (z ^ z >> 27) * 0x94d049bb133111ebu;
    z ^= z >> 31;
    return (z >> 11) * 0x1p-53;
}

/* The newest tokens of the text, as many as the model can see. */
struct text {
    int32_t *window;  /* [seq_len] */
    int32_t *targets; /* [seq_len], all masked */
    float *logits;    /* [vocab] */
    int seq_len;
    int length; /* of the window so far */
};

static void push_token(struct text *text, int32_t token)
{
    if (text->length == text->seq_len) {
        text->length--;
        memmove(text->window, text->window + 1,
                text->length * sizeof(*text->window));
    }
    text->window[text->length++] = token;
}

/* The rank that draws: it has the logits. */
static int drawing_rank(const struct plait_mesh *mesh)
{
    struct plait_coord at = {{0}};

    at.at[PLAIT_PP] = mesh->layout.size[PLAIT_PP] - 1;
    return plait_layout_rank(&mesh->layout, &at);
}

static int next_token(struct plait_pipeline *pipe, struct plait_mesh *mesh,
                      const struct plait_job_config *config, struct text *text,
                      int vocab, int64_t index, int32_t *token)
{
    int root = drawing_rank(mesh);
    struct plait_batch batch = {
        .batch = 1,
        .seq_len = text->length,
        .tokens = text->window,
        .targets = text->targets,
    };

    if (plait_pipeline_logits(pipe, &batch, text->logits) < 0)
        return -1;
    if (mesh->rank == root)
        *token = plait_sample_token(text->logits, vocab, TEMPERATURE,
                                    uniform_draw(config->train.seed, index));
    return plait_comm_host_broadcast(mesh->world, token, sizeof(*token), root);
}

static int generate_tokens(struct plait_pipeline *pipe, struct plait_mesh *mesh,
                           const struct plait_job_config *config,
                           struct text *text,
                           struct plait_detokenizer *detokenizer, int64_t count,
                           FILE *out, struct plait_error *err)
{
    int32_t token = 0;
    int64_t i;

    for (i = 0; i < count; i++) {
        if (next_token(pipe, mesh, config, text, detokenizer->vocab, i,
                       &token) < 0)
            return plait_errorf(err, "sampling failed: %s",
                                plait_comm_error(mesh->world));
        push_token(text, token);
        if (mesh->rank == 0 &&
            plait_detokenizer_put(detokenizer, token, out, err) < 0)
            return -1;
    }
    return mesh->rank == 0 ? plait_detokenizer_end(detokenizer, out, err) : 0;
}

int plait_sample(struct plait_pipeline *pipe, struct plait_mesh *mesh,
                 const struct plait_job_config *config,
                 struct plait_detokenizer *detokenizer, int64_t count,
                 FILE *out, struct plait_error *err)
{
    int vocab = config->model.vocab, n = config->model.seq_len, i, rc = -1;
    size_t k;
    struct text text = {
        .window = malloc(n * sizeof(*text.window)),
        .targets = malloc(n * sizeof(*text.targets)),
        .logits = malloc(vocab * sizeof(*text.logits)),
        .seq_len = n,
    };

    if (!text.window || !text.targets || !text.logits) {
        plait_errorf(err, "out of memory");
        goto out;
    }
    for (i = 0; i < n; i++)
        text.targets[i] = -1;
    for (k = 0; k < detokenizer->nprompt; k++) {
        push_token(&text, detokenizer->prompt[k]);
        if (mesh->rank == 0 &&
            plait_detokenizer_put(detokenizer, detokenizer->prompt[k], out,
                                  err) < 0)
            goto out;
    }
    rc = generate_tokens(pipe, mesh, config, &text, detokenizer, count, out,
                         err);
out:
    free(text.window);
    free(text.targets);
    free(text.logits);
    return rc;
}
