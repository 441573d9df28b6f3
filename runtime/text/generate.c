/* SPDX-License-Identifier: Apache-2.0 */
/* Draws tokens for many texts at once, under any layout, until each is done. */
#include "config.h"

#include "runtime/text/generate.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/text/text_out.h"
#include "topology/base/clock.h"

/* The most tokens that a pass adds: enough for products at full speed, and with
 * activations that are small beside the weights. */
#define ROWS_MOST 256

/* A text under way. */
struct text {
    int32_t *window; /* [length] the newest tokens */
    int have;        /* how many of them there are */
    int cached;      /* those of them that have keys and values */
    int64_t drawn;   /* tokens after the prompt */
    bool done;
    /* Rank 0: */
    struct plait_text_out as;
    FILE *out; /* the caller's file, or `held` until it is this text's turn */
    char *held;
    size_t held_size;
};

struct generator {
    struct plait_model *model;
    struct plait_mesh *mesh;
    const struct plait_prompts *prompts;
    const struct plait_generate_how *how;
    FILE *out;
    int length, rows;
    int n;
    struct text *text; /* [n] */
    int turn;          /* the text that is written while it is drawn */
    struct plait_decoder *decoder;
    /* For one pass: */
    struct plait_addition *add; /* [n] */
    int nadd;
    int32_t *tokens; /* [rows] */
    float *logits;   /* [n, vocab] on the last stage */
    int32_t *next;   /* [n] */
    struct plait_generate_stats stats;
};

/* -- output, on rank 0 ----------------------------------------------------- */

static void write_header(const struct generator *g, int i)
{
    if (g->n > 1)
        fprintf(g->out, "%s==> %d <==\n", i > 0 ? "\n" : "", i + 1);
}

/* Text `turn` is complete: write what there is of the next ones, up to the
 * first that is not complete. */
static int next_turn(struct generator *g, struct plait_error *err)
{
    while (g->turn < g->n && g->text[g->turn].done) {
        struct text *t;

        if (++g->turn == g->n)
            break;
        t = &g->text[g->turn];
        write_header(g, g->turn);
        if (fclose(t->out) != 0)
            return plait_errorf(err, "out of memory");
        t->out = g->out;
        fwrite(t->held, 1, t->held_size, g->out);
    }
    fflush(g->out);
    return 0;
}

static int open_output(struct generator *g, struct plait_error *err)
{
    for (int i = 0; i < g->n; i++) {
        struct text *t = &g->text[i];

        t->as.tokenizer = g->prompts->tokenizer;
        t->out = i == 0 ? g->out : open_memstream(&t->held, &t->held_size);
        if (!t->out)
            return plait_errorf(err, "out of memory");
    }
    write_header(g, 0);
    return 0;
}

static int write_token(struct generator *g, int i, int32_t token,
                       struct plait_error *err)
{
    struct text *t = &g->text[i];

    if (plait_text_out_put(&t->as, token, t->out, err) < 0)
        return -1;
    return i == g->turn && fflush(t->out) != 0
               ? plait_errorf(err, "cannot write the text: %s", strerror(errno))
               : 0;
}

/* -- tokens ---------------------------------------------------------------- */

static bool is_end(const struct generator *g, int32_t token)
{
    for (int i = 0; g->how->stop_at_end && i < g->prompts->nstops; i++)
        if (token == g->prompts->stop[i])
            return true;
    return false;
}

/* A full window is cut to its newer half, which the model then sees as if the
 * text began there. */
static void push_token(struct generator *g, struct text *t, int32_t token)
{
    if (t->have == g->length) {
        t->have = g->length / 2;
        memmove(t->window, t->window + g->length - t->have,
                t->have * sizeof(*t->window));
        t->cached = 0;
    }
    t->window[t->have++] = token;
}

static int take_token(struct generator *g, int i, int32_t token,
                      struct plait_error *err)
{
    struct text *t = &g->text[i];
    bool end = is_end(g, token);

    t->drawn++;
    t->done = end || t->drawn == g->how->tokens;
    if (!end)
        push_token(g, t, token);
    if (g->mesh->rank != 0)
        return 0;
    if (!end && write_token(g, i, token, err) < 0)
        return -1;
    if (t->done && plait_text_out_end(&t->as, t->out, err) < 0)
        return -1;
    return next_turn(g, err);
}

/* -- a pass ---------------------------------------------------------------- */

/* The tokens that have no keys and values yet, as many as there is room for. */
static void fill_pass(struct generator *g, struct plait_additions *added)
{
    bool alone = g->model->config->model.experts_capacity > 0;
    int rows = 0;

    g->nadd = 0;
    for (int i = 0; i < g->n && rows < g->rows && !(alone && g->nadd); i++) {
        struct text *t = &g->text[i];
        int n = t->have - t->cached;

        if (t->done || n == 0)
            continue;
        n = n < g->rows - rows ? n : g->rows - rows;
        memcpy(g->tokens + rows, t->window + t->cached, n * sizeof(*g->tokens));
        g->add[g->nadd++] =
            (struct plait_addition){i, t->cached, n, t->cached + n == t->have};
        t->cached += n;
        rows += n;
    }
    added->n = g->nadd;
    added->add = g->add;
    added->tokens = g->tokens;
}

/* The rank that draws, because it has the logits. */
static int drawing_rank(const struct plait_mesh *mesh)
{
    struct plait_coord at = {{0}};

    at.at[PLAIT_PP] = mesh->layout.size[PLAIT_PP] - 1;
    return plait_layout_rank(&mesh->layout, &at);
}

static int draw_tokens(struct generator *g, struct plait_error *err)
{
    int root = drawing_rank(g->mesh);
    size_t vocab = g->model->config->model.vocab;

    for (int i = 0; g->mesh->rank == root && i < g->nadd; i++) {
        const struct plait_addition *a = &g->add[i];

        if (a->wanted)
            g->next[i] = plait_choose_token(
                &g->how->choice, g->logits + i * vocab, g->prompts->vocab,
                a->text, g->text[a->text].drawn);
    }
    if (plait_comm_host_broadcast(g->mesh->world, g->next,
                                  g->nadd * sizeof(*g->next), root) < 0)
        return plait_errorf(err, "%s", plait_comm_error(g->mesh->world));
    for (int i = 0; i < g->nadd; i++)
        if (g->add[i].wanted && g->next[i] < 0)
            return plait_errorf(err, "the model's logits are not finite");
    return 0;
}

static void count_pass(struct generator *g, double start)
{
    int64_t rows = 0, wanted = 0;

    for (int i = 0; i < g->nadd; i++) {
        rows += g->add[i].count;
        wanted += g->add[i].wanted;
    }
    if (rows == g->nadd) {
        g->stats.tokens += wanted;
        g->stats.tokens_s += plait_clock_now() - start;
    } else {
        g->stats.prompt_tokens += rows;
        g->stats.prompt_s += plait_clock_now() - start;
    }
}

static int one_pass(struct generator *g, struct plait_error *err)
{
    struct plait_additions added;
    double start = plait_clock_now();

    fill_pass(g, &added);
    if (plait_decoder_extend(g->decoder, &added, g->logits) < 0)
        return plait_errorf(err, "generation failed: %s",
                            plait_comm_error(g->mesh->world));
    if (draw_tokens(g, err) < 0)
        return -1;
    for (int i = 0; i < g->nadd; i++)
        if (g->add[i].wanted &&
            take_token(g, g->add[i].text, g->next[i], err) < 0)
            return -1;
    count_pass(g, start);
    return 0;
}

/* -- life ------------------------------------------------------------------ */

static void choose_sizes(struct generator *g)
{
    int seq_len = g->model->config->model.seq_len, longest = 0, all = 0;

    for (int i = 0; i < g->n; i++) {
        int n = g->prompts->first[i + 1] - g->prompts->first[i];

        longest = n > longest ? n : longest;
        all += n;
    }
    g->length = longest + g->how->tokens < seq_len
                    ? longest + (int)g->how->tokens
                    : seq_len;
    g->rows = all > g->n ? all : g->n;
    g->rows = g->rows > g->length / 2 ? g->rows : g->length / 2 + 1;
    g->rows = g->rows < ROWS_MOST ? g->rows : ROWS_MOST;
    g->stats.texts = g->n;
    g->stats.length = g->length;
    g->stats.cache_bytes = plait_model_cache_bytes(g->model, g->n, g->length);
}

static int make_buffers(struct generator *g, struct plait_error *err)
{
    size_t vocab = g->model->config->model.vocab;

    g->text = calloc(g->n, sizeof(*g->text));
    g->add = calloc(g->n, sizeof(*g->add));
    g->tokens = calloc(g->rows, sizeof(*g->tokens));
    g->next = calloc(g->n, sizeof(*g->next));
    g->logits = calloc(g->n * vocab, sizeof(*g->logits));
    if (!g->text || !g->add || !g->tokens || !g->next || !g->logits)
        return plait_errorf(err, "out of memory");
    for (int i = 0; i < g->n; i++)
        if (!(g->text[i].window = calloc(g->length, sizeof(int32_t))))
            return plait_errorf(err, "out of memory");
    return 0;
}

static int write_prompts(struct generator *g, struct plait_error *err)
{
    const struct plait_prompts *p = g->prompts;

    if (g->mesh->rank == 0 && open_output(g, err) < 0)
        return -1;
    for (int i = 0; i < g->n; i++)
        for (int k = p->first[i]; k < p->first[i + 1]; k++) {
            push_token(g, &g->text[i], p->tokens[k]);
            if (g->mesh->rank == 0 && write_token(g, i, p->tokens[k], err) < 0)
                return -1;
        }
    return 0;
}

static void close_generator(struct generator *g)
{
    for (int i = 0; g->text && i < g->n; i++) {
        if (g->text[i].out && g->text[i].out != g->out)
            fclose(g->text[i].out);
        free(g->text[i].held);
        free(g->text[i].window);
    }
    plait_decoder_destroy(g->decoder);
    free(g->text);
    free(g->add);
    free(g->tokens);
    free(g->next);
    free(g->logits);
}

static bool is_done(const struct generator *g)
{
    for (int i = 0; i < g->n; i++)
        if (!g->text[i].done)
            return false;
    return true;
}

int plait_generate(struct plait_model *model,
                   const struct plait_prompts *prompts,
                   const struct plait_generate_how *how, FILE *out,
                   struct plait_generate_stats *stats, struct plait_error *err)
{
    struct generator g = {.model = model,
                          .mesh = model->mesh,
                          .prompts = prompts,
                          .how = how,
                          .out = out,
                          .n = prompts->n};
    int rc;

    choose_sizes(&g);
    rc = make_buffers(&g, err);
    if (rc == 0) {
        g.decoder = plait_decoder_create(model, g.n, g.length, g.rows, err);
        rc = g.decoder ? 0 : -1;
    }
    if (rc == 0)
        rc = write_prompts(&g, err);
    while (rc == 0 && !is_done(&g))
        rc = one_pass(&g, err);
    if (rc == 0 && stats)
        *stats = g.stats;
    close_generator(&g);
    return rc;
}
