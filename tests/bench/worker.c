/* SPDX-License-Identifier: Apache-2.0 */
#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "bench.h"
#include "kernels/cpu/cpu.h"
#include "kernels/linear.h"

/* Answers requests until the driver closes the pipe. */
static int serve(const char *name, double (*run)(void *arg), void *arg)
{
    struct rusage usage;
    char line[64];
    double seconds;

    printf("ready %s\n", name);
    fflush(stdout);
    while (fgets(line, sizeof(line), stdin) != NULL) {
        if (strcmp(line, "memory\n") == 0) {
            getrusage(RUSAGE_SELF, &usage);
            printf("%ld\n", usage.ru_maxrss);
        } else {
            seconds = run(arg);
            if (isnan(seconds))
                return 1;
            printf("%.9f\n", seconds);
        }
        fflush(stdout);
    }
    return 0;
}

/* -- the trainer --------------------------------------------------------- */

struct train_worker {
    struct plait_trainer *trainer;
    int64_t step;
};

static double train_step(void *arg)
{
    struct train_worker *w = arg;
    struct plait_step_result result;
    struct plait_error err = {{0}};
    double start = bench_now();

    if (plait_trainer_step(w->trainer, w->step++, 0, &result, &err) < 0 ||
        !isfinite(result.loss)) {
        fprintf(stderr, "plait-bench: step: %s\n", err.text);
        return NAN;
    }
    return bench_now() - start;
}

/* Writes random tokens in llm.c's format; the caller unlinks the file. */
static int write_tokens(char *path, int vocab, size_t count)
{
    int32_t header[256] = {20240520, 1, (int32_t)count};
    int fd = mkstemps(path, 4);
    FILE *f = fd < 0 ? NULL : fdopen(fd, "w");
    uint64_t x = 1;

    if (f == NULL)
        return -1;
    fwrite(header, sizeof(header), 1, f);
    for (size_t i = 0; i < count; i++) {
        uint16_t token;

        x = x * UINT64_C(6364136223846793005) + 1442695040888963407;
        token = (uint16_t)((x >> 33) % (uint64_t)vocab);
        fwrite(&token, sizeof(token), 1, f);
    }
    return fclose(f);
}

/* Writes the configuration of a case; the caller unlinks it. */
static int write_config(char *path, const struct bench_case *c,
                        const char *precision, int micro_batch,
                        const char *tokens)
{
    int fd = mkstemps(path, 5);
    FILE *f = fd < 0 ? NULL : fdopen(fd, "w");

    if (f == NULL)
        return -1;
    fprintf(f,
            "model: {layers: %d, hidden: %d, heads: %d, vocab: %d, "
            "seq_len: %d",
            c->layers, c->hidden, c->heads, c->vocab, c->seq_len);
    if (c->kv_heads > 0)
        fprintf(f, ", family: llama, kv_heads: %d, ffn: %d", c->kv_heads,
                c->ffn);
    if (c->experts > 0) /* PyTorch's model has no balance loss */
        fprintf(f,
                ", experts: %d, experts_top_k: %d, "
                "experts_balance: 0",
                c->experts, c->top_k);
    fprintf(f, "}\n");
    fprintf(f,
            "train: {steps: 100000, global_batch: %d, micro_batch: %d, "
            "precision: %s}\n",
            c->batch, micro_batch, precision);
    fprintf(f, "data: {train: %s}\n", tokens);
    return fclose(f);
}

int bench_write_files(char *config, char *tokens, const struct bench_case *c,
                      const char *precision, int micro_batch)
{
    if (write_tokens(tokens, c->vocab,
                     (size_t)(c->batch * c->seq_len) * 64 + 1) == 0 &&
        write_config(config, c, precision, micro_batch, tokens) == 0)
        return 0;
    perror("plait-bench: files in /tmp");
    return -1;
}

int bench_append(const char *path, const char *text)
{
    FILE *f = fopen(path, "a");

    if (f == NULL)
        return -1;
    fputs(text, f);
    return fclose(f);
}

int bench_open_trainer(const char *config, struct plait_session *session,
                       struct plait_trainer **trainer, struct plait_error *err)
{
    struct plait_train_args args = {
        .config = config, .resume = "none", .device = "cpu"};

    if (plait_session_open(session, &args, err) < 0)
        return -1;
    *trainer = plait_trainer_create(session->config, session->mesh, err);
    if (*trainer == NULL ||
        plait_optim_init(plait_trainer_optim(*trainer), 1, err) < 0)
        return -1;
    return plait_trainer_open_data(*trainer, err);
}

int bench_serve_trainer(const char *config, const char *data)
{
    struct plait_session session = {0};
    struct train_worker w = {0};
    struct plait_error err = {{0}};
    int rc = bench_open_trainer(config, &session, &w.trainer, &err);

    unlink(data);
    unlink(config);
    if (rc < 0)
        fprintf(stderr, "plait-bench: %s\n", err.text);
    else
        rc = serve("plait", train_step, &w);
    plait_trainer_destroy(w.trainer);
    plait_session_close(&session);
    return rc == 0 ? 0 : 1;
}

int bench_train_worker(const struct bench_case *c, const char *precision,
                       const char *recompute)
{
    char tokens[] = "/tmp/plait-bench-XXXXXX.bin";
    char config[] = "/tmp/plait-bench-XXXXXX.yaml";
    char line[64];

    snprintf(line, sizeof(line), "parallel: {recompute: %s}\n", recompute);
    if (bench_write_files(config, tokens, c, precision, c->batch) < 0 ||
        bench_append(config, line) < 0)
        return 1;
    return bench_serve_trainer(config, tokens);
}

/* -- the matrix products alone ------------------------------------------- */

struct layer {
    size_t O, C;
    struct plait_weight *w;
    float *dw;
};

struct replay {
    const struct plait_ops *ops;
    struct plait_device *dev;
    struct plait_queue *q;
    enum plait_dtype type;
    size_t N;
    int nlayers;
    struct layer *layer;
    void *inp, *out; /* [N, the largest width] */
};

static double replay_step(void *arg)
{
    struct replay *r = arg;
    struct plait_linear forward = {.N = r->N, .inp.x = r->inp, .out = r->out};
    struct plait_linear_dinp dinp = {
        .N = r->N, .dout.x = r->out, .dinp = r->inp};
    struct plait_linear_dw dw = {
        .type = r->type, .N = r->N, .dout.x = r->out, .inp.x = r->inp};
    double start = bench_now();

    for (int i = 0; i < r->nlayers; i++) {
        forward.w = r->layer[i].w;
        r->ops->linear_forward(r->q, &forward);
    }
    for (int i = r->nlayers - 1; i >= 0; i--) {
        struct layer *l = &r->layer[i];

        dinp.w = l->w;
        dw.O = l->O;
        dw.C = l->C;
        dw.dw = l->dw;
        r->ops->linear_backward_input(r->q, &dinp);
        r->ops->linear_backward_weight(r->q, &dw);
    }
    return r->ops->queue_sync(r->q) < 0 ? NAN : bench_now() - start;
}

/* Values that neither overflow nor become subnormal from step to step. */
static void *matrix(struct replay *r, size_t n)
{
    void *p = r->ops->alloc(r->dev, n * plait_dtype_size(r->type));

    if (p == NULL)
        exit(1);
    return p;
}

static void add_layer(struct replay *r, int O, int C)
{
    struct layer *l = &r->layer[r->nlayers++];

    l->O = (size_t)O;
    l->C = (size_t)C;
    l->w = r->ops->weight_create(
        r->dev, &(struct plait_weight_data){r->type, l->O, l->C,
                                            matrix(r, l->O * l->C)});
    l->dw = r->ops->alloc(r->dev, l->O * l->C * sizeof(float));
    if (l->w == NULL || l->dw == NULL)
        exit(1);
}

int bench_replay_worker(const struct bench_case *c, enum plait_dtype type,
                        int threads, bool library)
{
    struct plait_ops ops = *plait_ops_cpu();
    struct replay r = {
        .ops = &ops, .type = type, .N = (size_t)(c->batch * c->seq_len)};
    int H = c->hidden, widest = c->vocab > 4 * H ? c->vocab : 4 * H;

    if (library)
        cpu_fill_linear(&ops);
    r.dev = r.ops->device_create(0, threads);
    r.q = r.dev != NULL ? r.ops->queue_create(r.dev, 0) : NULL;
    r.layer = calloc((size_t)c->layers * 4 + 1, sizeof(*r.layer));
    if (r.q == NULL || r.layer == NULL)
        return 1;
    for (int i = 0; i < c->layers; i++) {
        add_layer(&r, 3 * H, H);
        add_layer(&r, H, H);
        add_layer(&r, 4 * H, H);
        add_layer(&r, H, 4 * H);
    }
    add_layer(&r, c->vocab, H);
    r.inp = matrix(&r, r.N * (size_t)widest);
    r.out = matrix(&r, r.N * (size_t)widest);
    return serve("its matrix products", replay_step, &r);
}
