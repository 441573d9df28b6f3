/* SPDX-License-Identifier: Apache-2.0 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "model_run.h"

/* Under mpirun (model-mpi-N.sh): the model split over ranks gives the loss and
 * the gradients that each rank computes with the whole model. */

#define CHUNKED_ROWS 512        /* of a rank, that travel in four chunks */
#define ROWS (2 * CHUNKED_ROWS) /* at most */

static struct plait_comm *world;
static int32_t tokens[ROWS], targets[ROWS];

struct layout_case {
    enum plait_family family;
    int tp, cp;
    bool sequence;
    enum plait_recompute recompute;
    bool split; /* backward split into input and weight gradients */
    int experts, ep;
    bool rows;  /* as many rows as make transfers go in chunks */
    bool drops; /* dropout */
    bool mtp;   /* a module that predicts a token further, and documents */
};

static int32_t starts[ROWS]; /* of documents of up to five tokens */

static int all_true(int pass)
{
    double bad = !pass;

    plait_comm_host_all_reduce(world, &bad, 1, PLAIT_SUM);
    return bad == 0;
}

static double step(struct run *r, const struct plait_batch *b, bool split)
{
    struct plait_model *m = r->model;
    int rc;

    clear_grads(r);
    rc = plait_model_forward(
        m, &(struct plait_forward){.batch = b, .loss = r->loss, .train = true});
    if (rc == 0 && split)
        rc = plait_model_backward_input(m, &(struct plait_backward){0});
    if (rc == 0 && split)
        rc = plait_model_backward_weight(m, &(struct plait_backward){0});
    if (rc == 0 && !split)
        rc = plait_model_backward(m, &(struct plait_backward){0});
    for (int i = 0; i < m->nregions && rc == 0; i++)
        rc = plait_model_complete_gradient(m, &m->regions[i]);
    for (int i = 0; i < m->nregions && rc == 0; i++) {
        struct plait_region *g = &m->regions[i];

        rc = plait_comm_all_reduce(
            r->mesh
                .group[g->expert ? PLAIT_GROUP_EXPERT_DP : PLAIT_GROUP_DP_CP],
            &(struct plait_buffers){g->grad, g->grad, g->count, PLAIT_F32},
            PLAIT_SUM, r->mesh.q, NULL);
    }
    if (rc < 0)
        give_up("step", NULL);
    return take_loss(r);
}

/* The largest gradient of a tensor. A key's bias has gradient 0 (it adds the
 * same to all scores of a query), so its rounding error is compared with the
 * query's largest; an expert that no token chose has none. */
static double largest(const struct run *whole, const struct plait_tensor *t)
{
    double most = 0;
    float *g;

    if (strstr(t->name, "attention.k.bias"))
        t--;
    g = grad_of(whole, t);
    for (size_t i = 0; i < t->count; i++)
        most = fmax(most, fabs(g[i]));
    free(g);
    return most > 0 ? most : 1;
}

/* The largest difference between the shard in `r` and its part of the whole,
 * over the whole's largest element. */
static double difference(const struct run *r, const struct plait_tensor *t,
                         const struct run *whole)
{
    const struct plait_tensor *u = find_tensor(whole->model, t->name);
    float *g = grad_of(r, t), *want = grad_of(whole, u);
    size_t row0 = t->tp_axis == 0 ? t->local_first : 0;
    size_t col0 = t->tp_axis == 1 ? t->local_first : 0;
    double worst = 0;

    for (size_t i = 0; i < t->local_shape[0]; i++)
        for (size_t j = 0; j < t->local_shape[1]; j++) {
            double x = 0, y = g[i * t->local_shape[1] + j];

            if (row0 + i < t->shape[0])
                x = want[(row0 + i) * t->shape[1] + col0 + j];
            if (!(fabs(x - y) <= worst))
                worst = fabs(x - y);
        }
    free(g);
    free(want);
    return worst / largest(whole, u);
}

static struct plait_mesh *make_groups(const struct plait_ops *ops,
                                      struct plait_device *dev,
                                      const struct layout_case *c)
{
    struct plait_layout layout;
    struct plait_mesh *mesh;
    struct plait_error err;

    plait_layout_init(&layout);
    layout.size[PLAIT_TP] = c->tp;
    layout.size[PLAIT_CP] = c->cp;
    layout.size[PLAIT_EP] = c->ep;
    mesh = plait_mesh_create(ops, dev, world, &layout, &err);
    if (!mesh || plait_mesh_need(mesh, ~0u, &err) < 0)
        give_up("groups", &err);
    return mesh;
}

/* The logits of the token after a text of five tokens, added as three and two,
 * on every rank of the model. */
static void extended_logits(struct run *r, float *logits)
{
    const struct plait_addition three = {0, 0, 3, false}, two = {0, 3, 2, true};
    const struct plait_additions first = {1, &three, tokens};
    const struct plait_additions second = {1, &two, tokens + 3};
    struct plait_error err;

    if (plait_model_reserve_texts(r->model, 1, 5, 3, &err) < 0)
        give_up("texts", &err);
    if (plait_model_extend(r->model, &first, NULL, NULL, NULL) < 0 ||
        plait_model_extend(r->model, &second, NULL, NULL, logits) < 0)
        give_up("extend", NULL);
}

static double logits_difference(struct run *r, struct run *whole)
{
    int n = whole->model->config->model.vocab;
    float *x = malloc(n * sizeof(*x)), *y = malloc(n * sizeof(*y));
    double worst = 0;

    extended_logits(r, x);
    extended_logits(whole, y);
    for (int i = 0; i < n; i++)
        if (!(fabs(x[i] - y[i]) <= worst))
            worst = fabs(x[i] - y[i]);
    free(x);
    free(y);
    return worst;
}

static struct plait_job_config whole_config(const struct layout_case *c)
{
    struct plait_job_config one;

    small_config(&one, c->family);
    one.model.experts = c->experts;
    one.model.experts_balance = 0.1;
    one.model.mtp_layers = c->mtp;
    one.model.mtp_loss = 0.5;
    one.data.mask_documents = c->mtp;
    one.model.dropout = c->drops ? 0.2 : 0;
    one.model.attention_dropout = c->drops ? 0.3 : 0;
    if (c->cp == 3)
        one.model.seq_len = 12; /* two pieces of 2 tokens per rank */
    if (c->rows) {
        one.model.seq_len = CHUNKED_ROWS * c->cp / one.train.micro_batch;
        one.model.layers = 2; /* the other cases have more */
    }
    return one;
}

/* What one process computes for a case: all variants of a layout are compared
 * with it. */
struct whole {
    struct plait_job_config config;
    struct run run;
    struct plait_batch batch;
    double loss;
};

static void open_whole(struct whole *w, const struct layout_case *c)
{
    memset(w, 0, sizeof(*w));
    w->config = whole_config(c);
    place(&w->run.mesh, 1, 0, 1, 0);
    open_device(&w->run, plait_ops_cpu());
    open_model(&w->run, &w->config, 1);
    w->batch = make_batch(&w->config, tokens, targets);
    w->batch.sample = 1000;
    for (int i = 0; i < w->batch.batch * w->batch.seq_len; i++)
        starts[i] = i % w->batch.seq_len / 5 * 5;
    w->batch.starts = c->mtp ? starts : NULL;
    w->loss = step(&w->run, &w->batch, false);
}

static double gradients_difference(const struct run *r, struct whole *w,
                                   const char **where)
{
    double worst = 0;

    for (int i = 0; i < r->model->ntensors; i++) {
        double off = difference(r, &r->model->tensors[i], &w->run);

        if (off > worst || isnan(off)) {
            worst = off;
            *where = r->model->tensors[i].name;
        }
    }
    return worst;
}

static void check(const struct layout_case *c, const struct plait_mesh *mesh,
                  struct whole *w)
{
    static const char *const recompute[] = {"none", "selective", "full"};
    struct plait_job_config config = w->config;
    struct run r = {.mesh = *mesh};
    const char *where = "";
    double got, worst;
    int good;

    config.parallel.sequence = c->sequence;
    config.parallel.recompute = c->recompute;
    if (c->split)
        config.parallel.schedule = PLAIT_SCHEDULE_ZB_H1;
    open_model(&r, &config, 1);
    got = step(&r, &w->batch, c->split);
    plait_comm_host_all_reduce(mesh->group[PLAIT_GROUP_CP], &got, 1, PLAIT_SUM);
    worst = gradients_difference(&r, w, &where);
    good = all_true(fabs(got - w->loss) <= 1e-6 * w->loss && worst < 2e-5);
    if (!good)
        printf("# rank %d: loss %.9g, not %.9g; gradient of %s %g\n",
               plait_comm_rank(world), got, w->loss, where, worst);
    if (plait_comm_rank(world) == 0)
        ok(good,
           "family %d, tp %d%s, cp %d, %d experts over %d, recompute "
           "%s%s%s%s%s: "
           "loss off by %.1e, gradients by %.1e",
           c->family, c->tp, c->sequence ? " sequence" : "", c->cp, c->experts,
           c->ep, recompute[c->recompute], c->split ? ", split" : "",
           c->rows ? ", many rows" : "", c->drops ? ", dropout" : "",
           c->mtp ? ", mtp" : "", fabs(got - w->loss) / w->loss, worst);
    close_model(&r);
}

static void check_text(const struct plait_mesh *mesh, struct whole *w)
{
    struct run r = {.mesh = *mesh};
    int good;

    open_model(&r, &w->config, 1);
    good = all_true(logits_difference(&r, &w->run) < 1e-4);
    if (plait_comm_rank(world) == 0)
        ok(good, "and the same logits for a text that grows");
    close_model(&r);
}

/* Checks all combinations of sequence, recompute and split for one layout. */
static void check_mixes(struct layout_case c)
{
    const struct plait_ops *ops = plait_ops_cpu();
    struct plait_device *dev = ops->device_create(0, 1);
    struct plait_mesh *mesh = make_groups(ops, dev, &c);
    struct whole w;

    open_whole(&w, &c);
    for (int i = 0; i < 6; i++) {
        c.sequence = i & 1;
        c.recompute = i / 2;
        c.split = i >= 3;
        if (!c.sequence || c.tp > 1)
            check(&c, mesh, &w);
    }
    check_text(mesh, &w);
    close_run(&w.run);
    plait_mesh_destroy(mesh);
    ops->device_destroy(dev);
}

static void check_layouts(enum plait_family family, int size)
{
    for (int tp = 1; tp <= size; tp *= 2) {
        struct layout_case c = {.family = family, .tp = tp, .cp = size / tp};

        if (c.tp * c.cp != size)
            continue;
        c.ep = 1;
        check_mixes(c);
        c.experts = 4;
        check_mixes(c);
        c.ep = c.cp; /* all of cp * dp */
        if (c.ep > 1 && c.experts % c.ep == 0)
            check_mixes(c);
    }
}

/* Layers that have an mlp where others have experts. */
static void check_first(enum plait_family family, int size)
{
    struct layout_case c = {
        .family = family, .tp = size, .cp = 1, .ep = 1, .experts = 4};

    if (size % 2)
        return;
    check_mixes(c);
    c.tp = size / 2;
    c.cp = c.ep = 2;
    check_mixes(c);
}

/* Enough rows to travel in chunks. */
static void check_chunks(enum plait_family family)
{
    struct layout_case c = {
        .family = family, .tp = 4, .cp = 1, .ep = 1, .rows = true};

    check_mixes(c);
    c.tp = c.cp = 2;
    check_mixes(c);
    c.drops = true;
    check_mixes(c);
    c.experts = 4;
    check_mixes(c);
}

/* The token after the next is one of the same document, whoever has it. */
static void check_mtp(enum plait_family family, int size)
{
    for (int tp = 1; tp <= size; tp *= 2) {
        struct layout_case c = {
            .family = family, .tp = tp, .cp = size / tp, .ep = 1, .mtp = true};

        if (c.tp * c.cp != size)
            continue;
        check_mixes(c);
        c.experts = 4;
        check_mixes(c);
    }
}

/* What is dropped is the same everywhere. */
static void check_drops(enum plait_family family, int size)
{
    for (int tp = 1; tp <= size; tp *= 2) {
        struct layout_case c = {.family = family,
                                .tp = tp,
                                .cp = size / tp,
                                .ep = 1,
                                .drops = true};

        if (c.tp * c.cp == size)
            check_mixes(c);
    }
}

int main(void)
{
    struct plait_error err;
    int rank;

    world =
        plait_comm_create(PLAIT_COMM_MPI, plait_ops_cpu(), NULL, NULL, &err);
    if (!world)
        give_up("mpi", &err);
    check_layouts(PLAIT_GPT2, plait_comm_size(world));
    check_layouts(PLAIT_LLAMA, plait_comm_size(world));
    check_layouts(RICH_LLAMA, plait_comm_size(world));
    check_layouts(LATENT_LLAMA, plait_comm_size(world));
    check_layouts(DIRECT_LLAMA, plait_comm_size(world));
    check_first(FIRST_LLAMA, plait_comm_size(world));
    check_first(PLACED_LLAMA, plait_comm_size(world));
    check_drops(PLAIT_GPT2, plait_comm_size(world));
    check_drops(BOTH_LLAMA, plait_comm_size(world));
    check_mtp(PLAIT_GPT2, plait_comm_size(world));
    check_mtp(PLAIT_LLAMA, plait_comm_size(world));
    if (plait_comm_size(world) == 4) {
        check_chunks(PLAIT_GPT2);
        check_chunks(PLAIT_LLAMA);
    }
    rank = plait_comm_rank(world);
    plait_comm_destroy(world);
    return rank == 0 ? done_testing() : 0;
}
