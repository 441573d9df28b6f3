/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "runtime/train/report.h"

#include <inttypes.h>
#include <stdio.h>

#include "kernels/kernels.h"
#include "runtime/checkpoint/hf_weights.h"
#include "runtime/comm/world_device.h"
#include "topology/job/model_size.h"
#include "topology/job/settings.h"

static const char *captured_parts(const struct plait_graphs *g)
{
    if (g->last)
        return g->optim ? "forward, backward and optimizer"
                        : "forward and backward";
    if (g->passes)
        return g->optim ? "all micro-batches of a step but the last, and the "
                          "optimizer"
                        : "all micro-batches of a step but the last";
    return g->optim ? "the optimizer" : "nothing";
}

/* A device without graph capture is not worth a line. */
static void print_graphs(const struct plait_session *s)
{
    const struct plait_graphs *g = &s->mesh->graphs;

    if (s->world.ops->graph_begin)
        printf("recorded as graphs: %s%s%s\n", captured_parts(g),
               g->why[0] ? "; " : "", g->why);
}

/* Inside a node the size is that of PyTorch's DDP, and not worth a line
 * either. */
static void print_buckets(const struct plait_session *s)
{
    const struct plait_parallel_config *p = &s->config->parallel;
    int domains = s->mesh->domains[PLAIT_GROUP_DP_CP];

    if (domains > 1 && p->zero == 0 && p->grad_sync == PLAIT_GRAD_BUCKETED)
        printf("gradients summed over %d %s in buckets of %.4g MiB\n", domains,
               s->mesh->domain == s->mesh->node ? "nodes" : "NVLink domains",
               (double)plait_mesh_bucket_bytes(s->mesh, p) / (1 << 20));
}

static void print_sharing(const struct plait_world *world)
{
    int ranks, cores = plait_world_shared_cores(world, &ranks);

    if (cores > 0 && !world->ops->gpu)
        printf("%d ranks take turns on this node's %d core%s\n", ranks, cores,
               cores == 1 ? "" : "s");
    if (world->ops->gpu && plait_comm_size(world->comm) > 1 &&
        plait_shared_gpus() > 0)
        printf("PLAIT_SHARE_GPUS: what ranks send each other goes through the "
               "host's memory\n");
}

static int count_windows(const struct plait_model_config *c)
{
    int n = 0;

    for (int i = 0; i < c->layers; i++)
        n += plait_model_windowed(c, i);
    return n;
}

static int count_chunks(const struct plait_model_config *c)
{
    int n = 0;

    for (int i = 0; i < c->layers; i++)
        n += plait_model_chunked(c, i);
    return n;
}

/* What computes attention on a GPU: cuDNN, where it can. */
static void print_attention(const struct plait_session *s)
{
    const struct plait_job_config *c = s->config;
    int layers = c->model.layers, windows = count_windows(&c->model);
    const char *own = plait_model_own_attention(c);

    if (!s->world.ops->gpu || plait_is_image_model(&c->model))
        return;
    if (own)
        printf("attention: own kernels (%s)\n", own);
    else if (c->optim.qk_clip > 0)
        printf("attention: own kernels forward (optim.qk_clip), backward %s\n",
               s->world.gpu.attention);
    else if (count_chunks(&c->model) > 0)
        printf("attention: %s; in the %d of %d layers with "
               "model.attention_chunk, own kernels\n",
               s->world.gpu.attention, count_chunks(&c->model), layers);
    else if (windows > 0 && s->mesh->layout.size[PLAIT_CP] > 1)
        printf("attention: %s; in the %d of %d layers with windows, own "
               "kernels where a window hides part of a chunk\n",
               s->world.gpu.attention, windows, layers);
    else
        printf("attention: %s\n", s->world.gpu.attention);
}

/* A vocabulary is often made a little larger, for the sake of speed. */
static void print_vocab(const struct plait_session *s)
{
    int vocab = s->config->model.vocab;

    if (s->data_vocab > 0 && vocab >= s->data_vocab + 128)
        printf("model.vocab is %d, but the data has %d tokens: the others cost "
               "time and memory, and are not learned\n",
               vocab, s->data_vocab);
}

static void print_dropout(const struct plait_model_config *m)
{
    if (m->dropout > 0 || m->attention_dropout > 0)
        printf("it trains with dropout: model.dropout %g, "
               "model.attention_dropout %g\n",
               m->dropout, m->attention_dropout);
}

static void print_init(const char *init, const struct plait_model_config *m)
{
    struct plait_hf_notes notes;

    printf("it begins with the weights of %s\n", init);
    plait_hf_notes_read(init, m, &notes);
    plait_hf_notes_print(&notes, "", stdout);
    if (!(notes.rate > 0 || notes.attention_rate > 0)) /* else it has said so */
        print_dropout(m);
}

static void print_beginning(const struct plait_session *s, int64_t done)
{
    if (done > 0 || !s->init)
        print_dropout(&s->config->model);
    if (done > 0)
        printf("resumed after step %" PRId64 "\n", done);
    else if (s->init)
        print_init(s->init, &s->config->model);
    else
        printf("it begins with new weights, of train.seed %" PRIu64 "\n",
               s->config->train.seed);
    if (done >= s->config->train.steps && s->data_unread.text[0])
        printf("%s; it is not needed any more\n", s->data_unread.text);
    if (done >= s->config->train.steps)
        printf("nothing is left to do: train.steps is %" PRId64
               "; with a larger one%s the run goes on\n",
               s->config->train.steps,
               plait_settings_counts_steps(s->config)
                   ? " and --resume-anyway train.steps"
                   : "");
}

void plait_report_start(const struct plait_session *s,
                        const struct plait_model *model, double peak,
                        int64_t done)
{
    const struct plait_job_config *c = s->config;
    const int *size = s->mesh->layout.size;

    printf("%s, %" PRId64 " parameters, %s on %s%s%s; %" PRId64 " steps of ",
           plait_family_names[c->model.family], model->parameters,
           plait_dtype_name(model->type), s->world.ops->name,
           s->world.ops->gpu ? "" : " ",
           s->world.ops->gpu ? "" : plait_cpu_isa(NULL), c->train.steps);
    if (plait_is_image_model(&c->model))
        printf("%d images\n", c->train.global_batch);
    else
        printf("%d x %d tokens\n", c->train.global_batch, c->model.seq_len);
    printf("%d rank%s: tp %d, cp %d, ep %d, dp %d, pp %d; MFU against %.4g "
           "GFLOP/s measured\n",
           s->mesh->world_size, s->mesh->world_size == 1 ? "" : "s",
           size[PLAIT_TP], size[PLAIT_CP], size[PLAIT_EP], size[PLAIT_DP],
           size[PLAIT_PP], peak / 1e9);
    if (s->world.by_mpi)
        printf("the ranks communicate by MPI, as each node has an RDMA device "
               "(--comm socket: over TCP)\n");
    print_sharing(&s->world);
    if (*s->links.all)
        printf("NCCL: %s\n", s->links.all);
    print_buckets(s);
    if (c->data.mask_documents)
        printf("attention and positions within documents\n");
    print_attention(s);
    print_graphs(s);
    print_vocab(s);
    print_beginning(s, done);
    if (!c->checkpoint.dir)
        printf("checkpoint.dir is not set: nothing will be saved\n");
    fflush(stdout);
}

void plait_report_changes(struct plait_report *report,
                          const struct plait_mesh *mesh)
{
    const char *remark = plait_queue_remark(mesh->q);

    if (mesh->graphs.failed && !report->graphs_failed) {
        report->graphs_failed = true;
        if (mesh->graphs.why[0])
            fprintf(stderr, "plait-train: steps run without graphs: %s\n",
                    mesh->graphs.why);
    }
    if (remark && !report->remarked) {
        report->remarked = true;
        fprintf(stderr, "plait-train: %s\n", remark);
    }
}
