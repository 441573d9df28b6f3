/* SPDX-License-Identifier: Apache-2.0 */
/* Steps of a ResNet-20 on images of CIFAR's shape, next to PyTorch's. */
#include "config.h"

#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "bench.h"

#define DEPTH "20"
#define BATCH 128
#define IMAGES 1024 /* in the file */
#define BYTES 3073  /* of an image with its label */

enum { PLAIT, TORCH, TORCH_NEW, NPEERS };

/* Writes random images in CIFAR-10's format; the caller unlinks the file. */
static int write_images(char *path)
{
    int fd = mkstemps(path, 4);
    FILE *f = fd < 0 ? NULL : fdopen(fd, "w");
    uint64_t x = 1;

    if (f == NULL)
        return -1;
    for (int i = 0; i < IMAGES * BYTES; i++) {
        x = x * UINT64_C(6364136223846793005) + 1442695040888963407;
        putc((int)((x >> 33) % (i % BYTES == 0 ? 10 : 256)), f);
    }
    return fclose(f);
}

static int write_config(char *path, const char *images)
{
    int fd = mkstemps(path, 5);
    FILE *f = fd < 0 ? NULL : fdopen(fd, "w");

    if (f == NULL)
        return -1;
    fprintf(f,
            "model: {family: resnet, depth: " DEPTH ", input: [3, 32, 32]}\n"
            "train: {steps: 100000, global_batch: %d, micro_batch: %d}\n"
            "optim: {name: sgd, lr: 0.1, momentum: 0.9, weight_decay: 0}\n"
            "data: {train: %s, format: cifar10}\n",
            BATCH, BATCH, images);
    return fclose(f);
}

int bench_image_worker(void)
{
    char images[] = "/tmp/plait-bench-XXXXXX.bin";
    char config[] = "/tmp/plait-bench-XXXXXX.yaml";
    int rc = 1;

    if (write_images(images) == 0 && write_config(config, images) == 0)
        rc = bench_serve_trainer(config, images);
    else
        perror("plait-bench: files in /tmp");
    return rc;
}

static void start_torch(struct bench_peer *p, const char *label,
                        const char *python, const char *script, int threads)
{
    char batch[16], count[16];
    char *argv[] = {(char *)python, (char *)script, DEPTH, batch, count, NULL};

    snprintf(batch, sizeof(batch), "%d", BATCH);
    snprintf(count, sizeof(count), "%d", threads);
    bench_peer_start(p, label, argv, bench_tuned);
}

json_t *bench_images(const struct bench_image_options *o)
{
    char *argv[] = {"/proc/self/exe", "--image-worker", NULL};
    struct bench_peer peer[NPEERS] = {0};
    struct bench_row row[NPEERS];
    json_t *rows = json_array();

    bench_peer_start(&peer[PLAIT], "plait", argv, NULL);
    start_torch(&peer[TORCH], "PyTorch of this system", o->python, o->script,
                o->threads);
    if (o->python_new != NULL)
        start_torch(&peer[TORCH_NEW], "PyTorch of TORCH_PYTHON", o->python_new,
                    o->script, o->threads);
    for (int p = 0; p < NPEERS; p++)
        row[p] = (struct bench_row){.what = "ResNet-20, 128 images, fp32",
                                    .who = peer[p].label,
                                    .version = peer[p].name,
                                    .rate = NAN,
                                    .unit = "images/s"};
    for (int round = -1; round < o->rounds; round++)
        for (int p = 0; p < NPEERS; p++) {
            double seconds = bench_peer_ask(&peer[p], "run");

            if (round >= 0 && isfinite(seconds))
                bench_add(&row[p].s, seconds);
        }
    printf("\n| images | who | ms | least | most | rate | | time over plait's "
           "|\n|---|---|---|---|---|---|---|---|\n");
    for (int p = 0; p < NPEERS; p++) {
        bench_peer_stop(&peer[p]);
        row[p].rate = BATCH / bench_median(&row[p].s);
        if (row[p].who != NULL)
            bench_report_row(&row[p], bench_median(&row[PLAIT].s), rows);
    }
    return rows;
}
