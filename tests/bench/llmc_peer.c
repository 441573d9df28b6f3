/* SPDX-License-Identifier: Apache-2.0 */
/* llm.c's CPU program as a contestant. `make bench LLMC=DIR` compiles this with
 * DIR in the include path: a step is that of llm.c's main(), with a model file
 * in its format that has random weights, and random tokens.
 *
 *   llmc-peer LAYERS HIDDEN HEADS VOCAB SEQ_LEN BATCH */
#define TESTING /* leaves out llm.c's main() */
#include "train_gpt2.c"

#include <sys/resource.h>

static uint64_t state = 1;

static uint32_t draw(void)
{
    state = state * UINT64_C(6364136223846793005) + 1442695040888963407;
    return (uint32_t)(state >> 33);
}

/* Weights uniform in +-0.035 (GPT-2's variance), LayerNorm 1 and 0, in the
 * order of llm.c's ParameterTensors. */
static int write_model(char *path, const int *n)
{
    int fd = mkstemp(path),
        header[256] = {20240326, 3, n[4], n[3], n[0], n[2], n[1], n[3]};
    FILE *f = fd < 0 ? NULL : fdopen(fd, "wb");
    GPT2Config config = {.max_seq_len = n[4],
                         .vocab_size = n[3],
                         .padded_vocab_size = n[3],
                         .num_layers = n[0],
                         .num_heads = n[2],
                         .channels = n[1]};
    size_t sizes[NUM_PARAMETER_TENSORS];

    if (f == NULL)
        return -1;
    fwrite(header, sizeof(header), 1, f);
    fill_in_parameter_sizes(sizes, config);
    for (int t = 0; t < NUM_PARAMETER_TENSORS; t++) {
        int ones = t == 2 || t == 8 || t == 14;
        int zeros = t == 3 || t == 9 || t == 15;

        for (size_t i = 0; i < sizes[t]; i++) {
            float x = 0.07f * ((float)draw() * 0x1p-31f - 0.5f);

            x = ones ? 1 : zeros ? 0 : x;
            fwrite(&x, sizeof(x), 1, f);
        }
    }
    return fclose(f);
}

static double now(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static double train_step(GPT2 *model, const int *tokens, int B, int T, int step)
{
    double start = now();

    gpt2_forward(model, (int *)tokens, (int *)tokens + 1, (size_t)B, (size_t)T);
    gpt2_zero_grad(model);
    gpt2_backward(model);
    gpt2_update(model, 1e-4f, 0.9f, 0.999f, 1e-8f, 0.0f, step);
    return now() - start;
}

int main(int argc, char **argv)
{
    char path[] = "/tmp/plait-bench-XXXXXX", line[64];
    int n[6], saved = dup(1), *tokens;
    struct rusage usage;
    FILE *out = fdopen(saved, "w");
    GPT2 model;

    if (argc != 7 || out == NULL)
        return 2;
    for (int i = 0; i < 6; i++)
        n[i] = atoi(argv[i + 1]);
    tokens = malloc(((size_t)n[4] * (size_t)n[5] + 1) * sizeof(*tokens));
    if (tokens == NULL || write_model(path, n) != 0)
        return 1;
    for (int i = 0; i <= n[4] * n[5]; i++)
        tokens[i] = (int)(draw() % (uint32_t)n[3]);
    dup2(2, 1); /* its output must not look like an answer */
    gpt2_build_from_checkpoint(&model, path);
    unlink(path);
    fprintf(out, "ready llm.c, fp32\n");
    fflush(out);
    for (int step = 1; fgets(line, sizeof(line), stdin) != NULL;) {
        if (strcmp(line, "memory\n") == 0) {
            getrusage(RUSAGE_SELF, &usage);
            fprintf(out, "%ld\n", usage.ru_maxrss);
        } else {
            fprintf(out, "%.9f\n",
                    train_step(&model, tokens, n[5], n[4], step++));
        }
        fflush(out);
    }
    return 0;
}
