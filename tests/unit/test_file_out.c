/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>
#include <zlib.h>

#include "runtime/checkpoint/file_out.h"
#include "tap.h"
#include "temp_path.h"

/* Files that are written block by block have the given bytes, whether they go
 * through the page cache or past it. */

enum { BLOCK = 4 << 20, MOST = 3 * BLOCK + 4096 };

static unsigned char *bytes, *back;
static char path[TEMP_PATH];

static void fill_bytes(void)
{
    unsigned x = 1;

    for (size_t i = 0; i < MOST; i++) {
        x = x * 1664525 + 1013904223;
        bytes[i] = (unsigned char)(x >> 24);
    }
}

static int is_same(size_t size)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    size_t got = 0;
    ssize_t n = 1;

    while (fd >= 0 && n > 0) {
        n = read(fd, back + got, MOST + 1 - got);
        got += n > 0 ? (size_t)n : 0;
    }
    if (fd >= 0)
        close(fd);
    return got == size && memcmp(back, bytes, size) == 0;
}

/* Writes `part` bytes at a time, from `image`. */
static int write_file_from(struct plait_file_out *out, const void *image,
                           size_t size, size_t part)
{
    size_t at, n;

    unlink(path);
    if (plait_file_out_open_image(out, path, image) < 0)
        return -1;
    for (at = 0; at < size; at += n) {
        n = size - at < part ? size - at : part;
        if (plait_file_out_write(out, bytes + at, n) < 0)
            return -1;
    }
    return 0;
}

static int write_file(struct plait_file_out *out, size_t size, size_t part)
{
    return write_file_from(out, NULL, size, part);
}

static void sizes(const char *where, const void *image)
{
    static const size_t size[] = {0,         1,         4096,
                                  BLOCK - 1, BLOCK,     BLOCK + 1,
                                  2 * BLOCK, 3 * BLOCK, MOST - 100};
    static const size_t part[] = {MOST, 100003, BLOCK};
    struct plait_file_out out;
    size_t i, k;
    int bad = 0;

    for (i = 0; i < sizeof(size) / sizeof(size[0]); i++)
        for (k = 0; k < sizeof(part) / sizeof(part[0]); k++) {
            int rc = write_file_from(&out, image, size[i], part[k]);

            rc |= plait_file_out_close(&out, 1);
            if (rc == 0 && is_same(size[i]) && out.bytes == size[i] &&
                out.crc == (uint32_t)crc32_z(0, bytes, size[i]))
                continue;
            bad++;
            diag("%zu bytes, %zu at a time: %s", size[i], part[k],
                 strerror(errno));
        }
    ok(bad == 0, "%s%s: every byte, and the checksum, of %zu sizes", where,
       image ? ", from an image" : "", sizeof(size) / sizeof(size[0]));
}

/* The check value of CRC-32, computed piece by piece. */
static void known_checksum(void)
{
    struct plait_file_out out;
    int rc;

    unlink(path);
    rc = plait_file_out_open(&out, path);
    rc |= plait_file_out_write(&out, "1234", 4);
    rc |= plait_file_out_write(&out, NULL, 0);
    rc |= plait_file_out_write(&out, "56789", 5);
    rc |= plait_file_out_close(&out, 1);
    ok(rc == 0 && out.crc == UINT32_C(0xcbf43926),
       "the checksum of 123456789, with nothing written inside: %08x", out.crc);
}

static void patches(void)
{
    static const uint64_t at[] = {0, 10, BLOCK - 2, 2 * BLOCK - 3, 9000000};
    static const unsigned char patch[5] = {1, 2, 3, 4, 5};
    struct plait_file_out out;
    int rc = write_file(&out, 2 * BLOCK + 700000, 65537);
    size_t i;

    for (i = 0; i < sizeof(at) / sizeof(at[0]); i++) {
        rc |= plait_file_out_patch(&out, at[i], patch, sizeof(patch));
        memcpy(bytes + at[i], patch, sizeof(patch));
    }
    rc |=
        plait_file_out_write(&out, bytes + 2 * BLOCK + 700000, BLOCK - 700000);
    rc |= plait_file_out_close(&out, 1);
    ok(rc == 0 && is_same(3 * BLOCK),
       "patches before, across and in the block that is put together");
}

/* Disk full: one of the calls fails, and the file is closed. */
static void full_disk(void)
{
    struct rlimit small = {BLOCK + 5000, RLIM_INFINITY}, before;
    struct plait_file_out out;
    int rc;

    getrlimit(RLIMIT_FSIZE, &before);
    small.rlim_max = before.rlim_max;
    setrlimit(RLIMIT_FSIZE, &small);
    rc = write_file(&out, MOST, 100000);
    if (rc == 0)
        rc = plait_file_out_close(&out, 1);
    ok(rc < 0 && errno == EFBIG, "a disk that is full: %s", strerror(errno));
    plait_file_out_close(&out, 0);
    ok(write_file(&out, BLOCK + 6000, BLOCK + 6000) == 0 &&
           plait_file_out_close(&out, 1) < 0 && errno == EFBIG,
       "the close says it where no write could");
    setrlimit(RLIMIT_FSIZE, &before);
    ok(write_file(&out, 5, 5) == 0 && plait_file_out_close(&out, 1) == 0 &&
           plait_file_out_open(&out, path) < 0 && errno == EEXIST,
       "a file that is there is left alone");
}

static void left(void)
{
    struct plait_file_out out;

    ok(write_file(&out, MOST, 4096) == 0 &&
           plait_file_out_close(&out, 0) == 0 &&
           plait_file_out_close(&out, 0) == 0,
       "one that is given up half-way, and closed again");
}

int main(void)
{
    bytes = aligned_alloc(BLOCK, (MOST + BLOCK - 1) / BLOCK * BLOCK);
    back = malloc(MOST + 1);
    if (!bytes || !back)
        return 1;
    signal(SIGXFSZ, SIG_IGN);
    fill_bytes();
    close(mkstemp(temp_path(path, "file-out")));
    sizes("a disk", NULL);
    sizes("a disk", bytes);
    left();
    known_checksum();
    patches();
    full_disk();
    unlink(path);
    if (access("/dev/shm", W_OK) == 0) {
        snprintf(path, sizeof(path), "/dev/shm/plait-file-out-%d",
                 (int)getpid());
        sizes("a memory file system", NULL);
        sizes("a memory file system", bytes);
        unlink(path);
    }
    free(bytes);
    free(back);
    return done_testing();
}
