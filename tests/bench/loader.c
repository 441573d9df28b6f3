/* SPDX-License-Identifier: Apache-2.0 */
/* Opening and sampling a large token file. */
#include "config.h"

#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <unistd.h>

#include "bench.h"
#include "runtime/data/data.h"
#include "runtime/data/shard.h"

/* Writes a sparse shard of this many tokens. */
static int write_sparse(char *path, int64_t tokens)
{
    struct plait_shard_header header = {2, tokens, 257, "byte", false};
    unsigned char bytes[PLAIT_SHARD_HEADER];
    int fd = mkstemps(path, 4);

    plait_shard_encode(&header, bytes);
    if (fd < 0 || write(fd, bytes, sizeof(bytes)) != sizeof(bytes) ||
        ftruncate(fd, PLAIT_SHARD_HEADER + 2 * tokens) < 0)
        return -1;
    return close(fd);
}

void bench_loader(int rounds, json_t *rows)
{
    char path[] = "/tmp/plait-bench-XXXXXX.bin";
    struct bench_row opening = {
        "opening 100 GB of tokens", "plait", "", {0}, NAN, NULL};
    struct bench_row sample = {
        "sampling 8 x 1024 tokens of them", "plait", "", {0}, NAN, "tokens/s"};
    int32_t input[1024], target[1024];
    struct plait_error err = {{0}};

    if (write_sparse(path, INT64_C(50000000000)) < 0) {
        printf("| opening 100 GB of tokens | no sparse file of that size in "
               "/tmp | - | - | - | - |  | - |\n");
        unlink(path);
        return;
    }
    for (int round = 0; round < rounds; round++) {
        const struct plait_sequence_form form = {1024, 257, -1};
        double start = bench_now();
        struct plait_dataset *ds =
            plait_dataset_create(path, PLAIT_DATA_AUTO, &err);
        int64_t n = ds != NULL ? plait_dataset_samples(ds, 1024) : 0;

        bench_add(&opening.s, bench_now() - start);
        start = bench_now();
        for (int i = 0; i < 8 && ds != NULL; i++)
            plait_dataset_expect(ds, plait_sample_index(1, n, 8 * round + i),
                                 1024);
        for (int i = 0; i < 8 && ds != NULL; i++)
            plait_dataset_read(ds, &form,
                               plait_sample_index(1, n, 8 * round + i), input,
                               target, &err);
        bench_add(&sample.s, bench_now() - start);
        plait_dataset_destroy(ds);
    }
    unlink(path);
    sample.rate = 8 * 1024 / bench_median(&sample.s);
    bench_report_row(&opening, bench_median(&opening.s), rows);
    bench_report_row(&sample, bench_median(&sample.s), rows);
}
