/* SPDX-License-Identifier: Apache-2.0 */
#include "kernels/kernels.h"
#include "model_run.h"
#include "topology/job/model_size.h"

/* usage: dump_grads gpt2|llama|first EXPERTS CAPACITY [MTP] > FILE
 * first: a llama whose first layer has no experts, and with shared ones.
 * MTP: model.mtp_loss of a model that predicts a token further.
 * Writes one training step of a small model for torch_check.py: a line
 * "key value ..." each for the configuration, tokens and targets; "loss X";
 * then per tensor a line "tensor NAME ROWS COLS", its values and its
 * gradient, fp32. */

static void write_tensor(const struct run *r, const struct plait_tensor *t)
{
    float *g = grad_of(r, t), *w = malloc(t->count * sizeof(*w));
    size_t n = t->shape[0] * t->shape[1];

    lively(t, w);
    printf("tensor %s %zu %zu\n", t->name, t->shape[0], t->shape[1]);
    fwrite(w, sizeof(*w), n, stdout);
    fwrite(g, sizeof(*g), n, stdout);
    free(g);
    free(w);
}

static void write_ids(const char *key, const int32_t *ids, int n)
{
    printf("%s", key);
    for (int i = 0; i < n; i++)
        printf(" %d", ids[i]);
    printf("\n");
}

int main(int argc, char **argv)
{
    bool given = argc == 4 || argc == 5;
    int first = given && strcmp(argv[1], "first") == 0;
    int llama = first || (given && strcmp(argv[1], "llama") == 0);
    static int32_t tokens[64], targets[64];
    struct plait_job_config config;
    struct plait_batch b;
    struct run r = {0};
    int n;

    if (!llama && (!given || strcmp(argv[1], "gpt2") != 0)) {
        fprintf(stderr, "usage: dump_grads gpt2|llama|first EXPERTS CAPACITY "
                        "[MTP] > FILE\n");
        return 2;
    }
    small_config(&config, first   ? FIRST_LLAMA
                          : llama ? PLAIT_LLAMA
                                  : PLAIT_GPT2);
    config.model.experts = atoi(argv[2]);
    config.model.experts_capacity = atof(argv[3]);
    config.model.experts_balance = 0.5;
    config.model.mtp_layers = argc == 5;
    config.model.mtp_loss = argc == 5 ? atof(argv[4]) : 0;
    place(&r.mesh, 1, 0, 1, 0);
    open_device(&r, plait_ops_cpu());
    open_model(&r, &config, 1);
    b = make_batch(&config, tokens, targets);
    n = b.batch * b.seq_len;
    if (plait_model_forward(r.model, &(struct plait_forward){.batch = &b,
                                                             .loss = r.loss,
                                                             .train = true}) <
            0 ||
        plait_model_backward(r.model, &(struct plait_backward){0}) < 0)
        give_up("step", NULL);
    printf("family %s\nlayers %d\nheads %d\nkv_heads %d\nbatch %d\n",
           llama ? "llama" : "gpt2", config.model.layers, config.model.heads,
           config.model.kv_heads, b.batch);
    printf("experts %d\ntop_k %d\nbalance %g\ncapacity %d\n",
           config.model.experts, config.model.experts_top_k,
           config.model.experts_balance, plait_model_capacity(&config.model));
    printf("mtp %g\n", config.model.mtp_loss);
    write_ids("tokens", tokens, n);
    write_ids("targets", targets, n);
    printf("loss %.17g\n", take_loss(&r));
    for (int i = 0; i < r.model->ntensors; i++)
        write_tensor(&r, &r.model->tensors[i]);
    close_run(&r);
    return fflush(stdout) == 0 && !ferror(stdout) ? 0 : 1;
}
