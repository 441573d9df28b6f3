/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "runtime/data/data.h"
#include "temp_path.h"
#include "test_seed.h"

/* Readers of IDX and CIFAR files, and augmentation as a function of seed,
 * sample and epoch. */

static char dir[TEMP_PATH];
static uint64_t random_state;

static unsigned char random_byte(void)
{
    random_state = random_state * 6364136223846793005u + 1442695040888963407u;
    return (unsigned char)(random_state >> 56);
}

static const char *in_dir(const char *name)
{
    static char path[4][256];
    static int turn;

    turn = (turn + 1) % 4;
    snprintf(path[turn], sizeof(path[turn]), "%s/%s", dir, name);
    return path[turn];
}

static void write_file(const char *name, const void *bytes, size_t size)
{
    FILE *file = fopen(in_dir(name), "w");

    if (!file || fwrite(bytes, 1, size, file) != size || fclose(file))
        abort();
}

/* Writes a header with `ndims` dimensions and `size` bytes after it. */
static void write_idx(const char *name, int ndims, const uint32_t *dim,
                      const unsigned char *data, size_t size)
{
    unsigned char *bytes = malloc(20 + size);
    size_t at = 4;

    memcpy(bytes, (unsigned char[]){0, 0, 8, (unsigned char)ndims}, 4);
    for (int i = 0; i < ndims; i++)
        for (int shift = 24; shift >= 0; shift -= 8)
            bytes[at++] = (unsigned char)(dim[i] >> shift);
    memcpy(bytes + at, data, size);
    write_file(name, bytes, at + size);
    free(bytes);
}

#define IDX(name, data, size, ...)                                        \
    write_idx(name, sizeof((uint32_t[]){__VA_ARGS__}) / sizeof(uint32_t), \
              (uint32_t[]){__VA_ARGS__}, (const unsigned char *)(data), size)

static void refused(const char *name, enum plait_data_format format,
                    const char *says)
{
    struct plait_error err = {""};
    struct plait_dataset *ds = plait_dataset_create(in_dir(name), format, &err);

    ok(!ds && strstr(err.text, says) && strstr(err.text, dir) &&
           !strchr(err.text, '\n'),
       "%s", ds ? "it was read" : err.text + strlen(dir) + 1);
    plait_dataset_destroy(ds);
}

/* -- correct files --------------------------------------------------------- */

static const struct plait_image_form plain = {.classes = 10, .std = 1};

static void idx_files(void)
{
    struct plait_error err = {""};
    struct plait_dataset *ds;
    float pixels[12];
    int32_t label;

    IDX("a-images-idx3-ubyte", "\0\1\2\3\4\5\377\7\10\11\12\13", 12, 2, 2, 3);
    IDX("a-labels-idx1-ubyte", "\3\11", 2, 2);
    ds = plait_dataset_create(in_dir("a-images-idx3-ubyte"), PLAIT_DATA_AUTO,
                              &err);
    ok(ds && plait_dataset_images(ds) == 2 &&
           !memcmp(plait_dataset_image_shape(ds), (int[]){1, 2, 3},
                   3 * sizeof(int)),
       "two images of one channel %s", err.text);
    ok(plait_dataset_read_image(ds, &plain, 1, 0, pixels, &label, &err) == 0 &&
           label == 9 && pixels[0] == 255 * (1 / 255.0f) &&
           pixels[1] == 7 * (1 / 255.0f) && pixels[5] == 11 * (1 / 255.0f),
       "pixels and label of the second");
    plait_dataset_destroy(ds);

    IDX("c-images-idx4-ubyte", "\0\1\2\3\4\5\6\7\10\11\12\13", 12, 1, 3, 2, 2);
    IDX("c-labels-idx1-ubyte", "\0", 1, 1);
    ds = plait_dataset_create(in_dir("c-images-idx4-ubyte"), PLAIT_DATA_AUTO,
                              &err);
    ok(plait_dataset_read_image(ds, &plain, 0, 0, pixels, &label, &err) == 0 &&
           pixels[1] == 4 * (1 / 255.0f) && pixels[2] == 8 * (1 / 255.0f) &&
           pixels[3] == 1 * (1 / 255.0f),
       "three channels come last");
    plait_dataset_destroy(ds);

    /* A label is checked when its image is read. */
    IDX("l-images-idx3-ubyte", "abcd", 4, 4, 1, 1);
    IDX("l-labels-idx1-ubyte", "\0\11\12\377", 4, 4);
    ds = plait_dataset_create(in_dir("l-images-idx3-ubyte"), PLAIT_DATA_AUTO,
                              &err);
    ok(plait_dataset_read_image(ds, &plain, 1, 0, pixels, &label, &err) == 0 &&
           plait_dataset_read_image(ds, &plain, 2, 0, pixels, &label, &err) ==
               -1 &&
           errno == ERANGE &&
           strstr(err.text, "image 2 has label 10, but model.classes is 10"),
       "%s", err.text);
    plait_dataset_destroy(ds);
}

static void cifar_files(void)
{
    unsigned char bytes[2 * 3074];
    struct plait_error err = {""};
    struct plait_dataset *ds;
    static float pixels[3072];
    int32_t label, good;

    for (size_t i = 0; i < sizeof(bytes); i++)
        bytes[i] = random_byte();
    for (int fine = 0; fine < 2; fine++) {
        size_t stride = 3073 + (size_t)fine;
        const unsigned char *second = bytes + stride;

        bytes[stride] = 7;
        bytes[stride + (size_t)fine] = (unsigned char)(9 - fine);
        write_file("cifar.bin", bytes, 2 * stride);
        ds = plait_dataset_create(in_dir("cifar.bin"), PLAIT_DATA_AUTO, &err);
        good = ds && plait_dataset_images(ds) == 2 &&
               plait_dataset_read_image(ds, &plain, 1, 0, pixels, &label,
                                        &err) == 0 &&
               label == 9 - fine;
        for (int i = 0; good && i < 3072; i++)
            good = pixels[i] ==
                   second[1 + fine + i % 3 * 1024 + i / 3] * (1 / 255.0f);
        ok(good, "CIFAR-%s: an image and its %slabel %s", fine ? "100" : "10",
           fine ? "fine " : "", err.text);
        plait_dataset_destroy(ds);
    }
}

/* -- wrong files ----------------------------------------------------------- */

static void wrong_idx(void)
{
    IDX("a2-images-idx3-ubyte", "abcdefghijk", 11, 2, 2, 3);
    refused("a2-images-idx3-ubyte", PLAIT_DATA_AUTO,
            "truncated: the header says 2 images or labels, 28 bytes");
    IDX("a3-images-idx3-ubyte", "abcdefghijklm", 13, 2, 2, 3);
    refused("a3-images-idx3-ubyte", PLAIT_DATA_AUTO, "too long");
    IDX("huge-images-idx3-ubyte", "abcd", 4, 0xffffffff, 0xffffffff,
        0xffffffff);
    refused("huge-images-idx3-ubyte", PLAIT_DATA_AUTO, "truncated");
    /* 2^16 * 2^24 * 2^24 is 0 modulo 2^64. */
    IDX("wrap-images-idx3-ubyte", "", 0, 1 << 16, 1 << 24, 1 << 24);
    refused("wrap-images-idx3-ubyte", PLAIT_DATA_AUTO, "truncated");
    IDX("flat-images-idx3-ubyte", "", 0, 0, 0, 3);
    refused("flat-images-idx3-ubyte", PLAIT_DATA_AUTO, "a side of 0 pixels");
    IDX("none-images-idx3-ubyte", "", 0, 0, 2, 3);
    IDX("none-labels-idx1-ubyte", "", 0, 0);
    refused("none-images-idx3-ubyte", PLAIT_DATA_AUTO, "there are no images");
    write_file("empty-images-idx3-ubyte", "", 0);
    refused("empty-images-idx3-ubyte", PLAIT_DATA_IDX,
            "empty-images-idx3-ubyte");
    write_file("short-images-idx3-ubyte", "\0\0\10\3\0\0\0\1\0\0", 10);
    refused("short-images-idx3-ubyte", PLAIT_DATA_AUTO, "not an IDX file");
    write_file("type-images-idx3-ubyte",
               "\0\0\15\3\0\0\0\1\0\0\0\1\0\0\0\1abcd", 20);
    refused("type-images-idx3-ubyte", PLAIT_DATA_IDX,
            "it begins with 00 00 0d 03");
    write_file("magic-images-idx3-ubyte", "PLAITTOKwhatever", 16);
    refused("magic-images-idx3-ubyte", PLAIT_DATA_IDX,
            "not an IDX file of bytes");
    IDX("two-images-idx3-ubyte", "abcd", 4, 2, 2);
    refused("two-images-idx3-ubyte", PLAIT_DATA_IDX, "it has 2 dimensions");
}

static void wrong_labels(void)
{
    refused("a-labels-idx1-ubyte", PLAIT_DATA_AUTO,
            "name the file of the images");
    IDX("noname-idx3-ubyte", "a", 1, 1, 1, 1);
    refused("noname-idx3-ubyte", PLAIT_DATA_AUTO, "contain \"images\"");
    IDX("n-images-idx3-ubyte", "ab", 2, 2, 1, 1);
    refused("n-images-idx3-ubyte", PLAIT_DATA_AUTO,
            "n-labels-idx1-ubyte: No such file");
    IDX("n-labels-idx1-ubyte", "\0\0\0", 3, 3);
    refused("n-images-idx3-ubyte", PLAIT_DATA_AUTO,
            "3 labels in 1 dimensions for the 2 images");
    IDX("n-labels-idx1-ubyte", "\0\0", 2, 2, 1);
    refused("n-images-idx3-ubyte", PLAIT_DATA_AUTO, "2 labels in 2 dimensions");
    IDX("n-labels-idx1-ubyte", "\0", 1, 2);
    refused("n-images-idx3-ubyte", PLAIT_DATA_AUTO,
            "n-labels-idx1-ubyte: trun");
    IDX("b-images-idx3-ubyte", "abcd", 4, 1, 2, 2);
    IDX("b-labels-idx1-ubyte", "\0", 1, 1);
    refused("[ab]-images-idx3-ubyte", PLAIT_DATA_AUTO,
            "images of 1 x 2 x 2, those of");
}

static void wrong_cifar(void)
{
    static unsigned char bytes[3074];

    write_file("cut.bin", bytes, 3072);
    refused("cut.bin", PLAIT_DATA_CIFAR10, "cut.bin");
    write_file("cut.bin", bytes, 3074);
    refused("cut.bin", PLAIT_DATA_CIFAR10,
            "3074 bytes are not a whole number of CIFAR images of 3073");
    write_file("cut.bin", bytes, 3073);
    refused("cut.bin", PLAIT_DATA_CIFAR100, "cut.bin");
    write_file("empty.bin", bytes, 0);
    refused("empty.bin", PLAIT_DATA_CIFAR10, "empty.bin");
}

/* -- augmentation, and which rank reads what ------------------------------- */

enum { IMAGES = 60, SIDE = 6, PIXELS = SIDE * SIDE };

static struct plait_dataset *make_images(void)
{
    unsigned char data[IMAGES * PIXELS], labels[IMAGES];
    struct plait_error err;

    for (size_t i = 0; i < sizeof(data); i++)
        data[i] = random_byte() | 1; /* not black: only padding is */
    for (int i = 0; i < IMAGES; i++)
        labels[i] = (unsigned char)i;
    IDX("m-images-idx3-ubyte", data, sizeof(data), IMAGES, SIDE, SIDE);
    IDX("m-labels-idx1-ubyte", labels, sizeof(labels), IMAGES);
    return plait_dataset_create(in_dir("m-images-idx3-ubyte"), PLAIT_DATA_AUTO,
                                &err);
}

/* Finds the shift by up to 2 pixels and the flip that turn `still` into
 * `moved`, numbered 0 .. 49; -1: there is none. */
static int find_motion(const float *still, const float *moved)
{
    for (int m = 0; m < 50; m++) {
        int down = m / 10 - 2, right = m / 2 % 5 - 2, same = 1;

        for (int i = 0; same && i < PIXELS; i++) {
            int y = i / SIDE - down, x = i % SIDE;

            x = (m % 2 ? SIDE - 1 - x : x) - right;
            same = moved[i] == (y < 0 || y >= SIDE || x < 0 || x >= SIDE
                                    ? 0
                                    : still[y * SIDE + x]);
        }
        if (same)
            return m;
    }
    return -1;
}

static void motions(const struct plait_dataset *ds, uint64_t seed)
{
    struct plait_image_form still = {.classes = 0, .std = 1}, moving, other;
    int seen[50] = {0}, all = 0, found = 1, same = 1, epochs = 0, seeds = 0;
    float a[PIXELS], b[PIXELS], c[PIXELS];
    struct plait_error err;
    int32_t label;

    still.classes = IMAGES;
    moving = still;
    moving.shift = 2;
    moving.flip = true;
    moving.seed = seed;
    other = moving;
    other.seed = seed + 1;
    for (int i = 0; i < IMAGES * 20; i++) {
        int at = i % IMAGES, epoch = i / IMAGES, motion;

        plait_dataset_read_image(ds, &still, at, epoch, a, &label, &err);
        plait_dataset_read_image(ds, &moving, at, epoch, b, &label, &err);
        motion = find_motion(a, b);
        found &= motion >= 0 && label == at;
        if (motion >= 0)
            seen[motion]++;
        plait_dataset_read_image(ds, &moving, at, epoch, c, &label, &err);
        same &= !memcmp(b, c, sizeof(b));
        plait_dataset_read_image(ds, &moving, at, epoch + 1, c, &label, &err);
        epochs += memcmp(b, c, sizeof(b)) != 0;
        plait_dataset_read_image(ds, &other, at, epoch, c, &label, &err);
        seeds += memcmp(b, c, sizeof(b)) != 0;
    }
    for (int i = 0; i < 50; i++)
        all += seen[i] > 0;
    ok(found && same, "each image is shifted and flipped, twice the same");
    /* 1200 draws of 50 motions: the probability that one is missing is
     * 1.5e-9. */
    ok(all == 50, "every motion comes up: %d of 50", all);
    ok(epochs > IMAGES * 18 && seeds > IMAGES * 18,
       "another epoch or seed, another motion");
}

static const struct plait_image_form augmented = {
    .classes = IMAGES, .std = 1, .shift = 2, .flip = true, .seed = 9};

/* Whether these are the pixels and label of the run's sample at `position`. */
static int is_sample(const struct plait_dataset *ds, uint64_t seed,
                     int64_t position, const float *pixels, int32_t label)
{
    int64_t index = plait_sample_index(seed, IMAGES, position);
    float want[PIXELS];
    struct plait_error err;
    int32_t want_label;

    plait_dataset_read_image(ds, &augmented, index, position / IMAGES, want,
                             &want_label, &err);
    return label == want_label && !memcmp(pixels, want, sizeof(want));
}

/* Two epochs in steps of 12 by `dp` ranks: each rank reads its part of each
 * micro-batch, so that ranks do not overlap and every layout reads the same. */
static void ranks(const struct plait_dataset *ds, int dp, uint64_t seed)
{
    int seen[2][IMAGES] = {{0}}, good = 1, once = 1;
    struct plait_error err;

    for (int rank = 0; rank < dp; rank++) {
        struct plait_share share = {
            .stride = 12, .first = rank * 12 / dp, .count = 12 / dp};
        struct plait_loader *l =
            plait_loader_create_images(ds, seed, &augmented, &share, 1, &err);

        for (int step = 0; step < 2 * IMAGES / 12; step++) {
            const float *pixels;
            const int32_t *labels;

            good &= plait_loader_next(l, 1, &err) == 0;
            plait_loader_get_images(l, 0, &pixels, &labels);
            for (int i = 0; i < share.count; i++) {
                good &= is_sample(ds, seed, step * 12 + share.first + i,
                                  pixels + i * PIXELS, labels[i]);
                seen[step * 12 / IMAGES][labels[i]]++;
            }
        }
        plait_loader_destroy(l);
    }
    for (int i = 0; i < IMAGES; i++)
        once &= seen[0][i] == 1 && seen[1][i] == 1;
    ok(good, "%d ranks: each reads its part of the run's samples", dp);
    ok(once, "%d ranks: every image once an epoch, none twice", dp);
}

static void sampling(void)
{
    uint64_t seed = test_seed();
    struct plait_dataset *ds;
    int moved = 0;

    random_state = seed;
    ds = make_images();
    ok(ds != NULL, "%d images", IMAGES);
    motions(ds, seed);
    for (int i = 0; i < IMAGES; i++)
        moved += plait_sample_index(seed, IMAGES, i) !=
                 plait_sample_index(seed, IMAGES, IMAGES + i);
    ok(moved > IMAGES / 2, "the second epoch has an order of its own");
    for (int dp = 1; dp <= 4; dp++)
        ranks(ds, dp, seed);
    plait_dataset_destroy(ds);
}

int main(void)
{
    char command[160];

    if (!mkdtemp(temp_path(dir, "images")))
        return 1;
    idx_files();
    cifar_files();
    wrong_idx();
    wrong_labels();
    wrong_cifar();
    sampling();
    snprintf(command, sizeof(command), "rm -rf '%s'", dir);
    ok(system(command) == 0, "cleaned up");
    return done_testing();
}
