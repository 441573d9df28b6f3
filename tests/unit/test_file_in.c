/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "runtime/checkpoint/blocks_in.h"
#include "tap.h"
#include "temp_path.h"
#include "test_seed.h"

/* Files that a thread reads ahead give the bytes that they have. */

enum { BLOCK = 4 << 20, MOST = 6 * BLOCK };

static unsigned char *bytes, *back;
static uint64_t state;

static uint64_t draw(uint64_t below)
{
    state = state * UINT64_C(6364136223846793005) + 1442695040888963407;
    return (state >> 33) % below;
}

static void fill_bytes(void)
{
    for (size_t i = 0; i < MOST; i++)
        bytes[i] = (unsigned char)(draw(1 << 20) >> 8);
}

/* An empty file that has been unlinked. */
static int make_file(size_t size)
{
    char path[TEMP_PATH];
    int fd = mkstemp(temp_path(path, "file-in"));

    if (fd < 0 || pwrite(fd, bytes, size, 0) != (ssize_t)size)
        abort();
    unlink(path);
    return fd;
}

/* Reads a file to `back`; returns how many bytes came, or -1 with errno. */
static ssize_t read_back(int fd, size_t size)
{
    struct plait_blocks_in *in = plait_blocks_in_create(fd, size);
    const char *block;
    size_t n, got = 0;
    int rc;

    if (!in)
        return -1;
    while ((rc = plait_blocks_in_next(in, &block, &n)) == 0 && n > 0) {
        if (n > MOST - got)
            break;
        memcpy(back + got, block, n);
        got += n;
    }
    plait_blocks_in_destroy(in);
    return rc < 0 ? -1 : (ssize_t)got;
}

static void sizes(void)
{
    static const size_t size[] = {0,         1,         4096,
                                  BLOCK - 1, BLOCK,     BLOCK + 1,
                                  2 * BLOCK, 5 * BLOCK, MOST - 100};
    size_t i;
    int bad = 0, fd;

    for (i = 0; i < sizeof(size) / sizeof(size[0]); i++) {
        fd = make_file(size[i]);
        memset(back, 0, MOST);
        if (read_back(fd, size[i]) != (ssize_t)size[i] ||
            memcmp(back, bytes, size[i]) != 0) {
            bad++;
            diag("%zu bytes: %s", size[i], strerror(errno));
        }
        close(fd);
    }
    ok(bad == 0, "every byte of %zu sizes", sizeof(size) / sizeof(size[0]));
}

/* A file that is shortened while it is read: what is left is read, then the
 * error is reported. */
static void shorter(size_t size, size_t left, const char *what)
{
    int fd = make_file(size);

    if (ftruncate(fd, (off_t)left) < 0)
        abort();
    errno = 0;
    ok(read_back(fd, size) < 0 && errno == ENODATA, "%s: %s", what,
       strerror(errno));
    close(fd);
}

/* A reader may stop before the end. */
static void leave(void)
{
    int fd = make_file(MOST), i;
    struct plait_blocks_in *in;
    const char *block;
    size_t n;

    for (i = 0; i < 3; i++) {
        in = plait_blocks_in_create(fd, MOST);
        for (int k = 0; k < i; k++)
            plait_blocks_in_next(in, &block, &n);
        plait_blocks_in_destroy(in);
    }
    plait_blocks_in_destroy(NULL);
    ok(fcntl(fd, F_GETFD) >= 0, "a file need not be read to its end");
    close(fd);
}

static void unreadable(void)
{
    int fd = open("/dev/null", O_WRONLY | O_CLOEXEC);

    errno = 0;
    ok(read_back(fd, 10) < 0 && errno == EBADF, "a short file that fails: %s",
       strerror(errno));
    ok(read_back(fd, 3 * BLOCK) < 0 && errno == EBADF, "a long one: %s",
       strerror(errno));
    close(fd);
}

int main(void)
{
    bytes = malloc(MOST);
    back = malloc(MOST);
    if (!bytes || !back)
        return 1;
    state = test_seed();
    fill_bytes();
    sizes();
    shorter(1000, 500, "a short file that has become shorter");
    shorter(5 * BLOCK, 3 * BLOCK + 77, "a long one");
    shorter(2 * BLOCK, 0, "one that was emptied");
    leave();
    unreadable();
    free(bytes);
    free(back);
    return done_testing();
}
