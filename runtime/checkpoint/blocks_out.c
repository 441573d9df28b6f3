/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE
#include "config.h"

#include "runtime/checkpoint/blocks_out.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "topology/base/thread.h"

/* A multiple of the alignment that any disk asks of direct writes. */
#define BLOCK ((size_t)4 << 20)
#define ALIGN ((size_t)64 << 10)
enum { BLOCKS = 2 };

struct plait_blocks_out {
    int fd;
    const char *image;   /* all bytes of the file, in their place, or NULL */
    char *block[BLOCKS]; /* NULL: not needed yet, or there is an image */
    size_t filled;       /* bytes of block[next] */
    int next;       /* the block that is being filled, after the full ones */
    uint64_t begin; /* offset of block[next] in the file */
    bool threaded;
    pthread_t thread;
    pthread_mutex_t mutex;
    pthread_cond_t changed;
    /* Under the mutex. */
    int full; /* blocks that are to be written */
    bool stop;
    int number; /* errno of what failed; 0: nothing has */
    /* Used by the writing thread alone while a block is full. */
    bool direct;
    uint64_t written;
};

/* Write past the page cache, which saves a copy and leaves the pages of other
 * files alone. Where the file system refuses, now or at the first block, writes
 * go through the cache. */
static bool set_direct(struct plait_blocks_out *b, bool direct)
{
    int flags = fcntl(b->fd, F_GETFL);

    if (flags < 0)
        return false;
    flags = direct ? flags | O_DIRECT : flags & ~O_DIRECT;
    if (fcntl(b->fd, F_SETFL, flags) < 0)
        return false;
    b->direct = direct;
    return true;
}

/* Writes all of it, or returns errno. */
static int write_all(struct plait_blocks_out *b, const char *bytes, size_t size)
{
    uint64_t begin = b->written;
    ssize_t n;

    while (size > 0) {
        n = write(b->fd, bytes, size);
        if (n < 0 && errno == EINVAL && b->direct && set_direct(b, false))
            continue;
        if (n < 0 && errno != EINTR)
            return errno;
        if (n <= 0)
            continue;
        bytes += n;
        size -= (size_t)n;
        b->written += (uint64_t)n;
    }
    /* Let the disk begin now, not when the file is synced. */
    if (!b->direct && b->written > begin)
        sync_file_range(b->fd, (off_t)begin, (off_t)(b->written - begin),
                        SYNC_FILE_RANGE_WRITE);
    return 0;
}

static void *write_blocks(void *blocks)
{
    struct plait_blocks_out *b = blocks;
    int at = 0, number;

    pthread_mutex_lock(&b->mutex);
    for (;;) {
        while (b->full == 0 && !b->stop)
            pthread_cond_wait(&b->changed, &b->mutex);
        if (b->stop)
            break;
        number = b->number;
        pthread_mutex_unlock(&b->mutex);
        if (number == 0)
            number = write_all(
                b, b->image ? b->image + b->written : b->block[at], BLOCK);
        pthread_mutex_lock(&b->mutex);
        b->number = number;
        b->full--;
        at = (at + 1) % BLOCKS;
        pthread_cond_broadcast(&b->changed);
    }
    pthread_mutex_unlock(&b->mutex);
    return NULL;
}

struct plait_blocks_out *plait_blocks_out_create(int fd, const char *image)
{
    struct plait_blocks_out *b = calloc(1, sizeof(*b));

    if (!b)
        return NULL;
    b->fd = fd;
    b->image = image;
    if (pthread_mutex_init(&b->mutex, NULL) != 0)
        goto error;
    if (pthread_cond_init(&b->changed, NULL) != 0) {
        pthread_mutex_destroy(&b->mutex);
        goto error;
    }
    return b;
error:
    free(b);
    return NULL;
}

void plait_blocks_out_destroy(struct plait_blocks_out *b)
{
    int saved = errno;

    if (!b)
        return;
    if (b->threaded) {
        pthread_mutex_lock(&b->mutex);
        b->stop = true;
        pthread_cond_broadcast(&b->changed);
        pthread_mutex_unlock(&b->mutex);
        pthread_join(b->thread, NULL);
    }
    pthread_cond_destroy(&b->changed);
    pthread_mutex_destroy(&b->mutex);
    for (int i = 0; i < BLOCKS; i++)
        free(b->block[i]);
    free(b);
    errno = saved;
}

/* Wait until at most `most` blocks are still to be written. */
static int wait_for(struct plait_blocks_out *b, int most)
{
    int number;

    pthread_mutex_lock(&b->mutex);
    while (b->full > most)
        pthread_cond_wait(&b->changed, &b->mutex);
    number = b->number;
    pthread_mutex_unlock(&b->mutex);
    errno = number;
    return number ? -1 : 0;
}

/* block[next] is full: pass it to the writing thread, and wait until another
 * one is free. */
static int hand_over(struct plait_blocks_out *b)
{
    if (!b->threaded) {
        set_direct(b, true);
        if (plait_thread_create(&b->thread, write_blocks, b) < 0)
            return -1;
        b->threaded = true;
    }
    pthread_mutex_lock(&b->mutex);
    b->full++;
    pthread_cond_broadcast(&b->changed);
    pthread_mutex_unlock(&b->mutex);
    b->next = (b->next + 1) % BLOCKS;
    b->begin += BLOCK;
    b->filled = 0;
    return wait_for(b, BLOCKS - 1);
}

static char *next_block(struct plait_blocks_out *b)
{
    void *block = b->block[b->next];

    if (block)
        return block;
    errno = posix_memalign(&block, ALIGN, BLOCK);
    if (errno)
        return NULL;
    b->block[b->next] = block;
    return block;
}

int plait_blocks_out_add(struct plait_blocks_out *b, const void *bytes,
                         size_t size)
{
    const char *from = bytes;
    char *block;
    size_t n;

    for (; size > 0; size -= n, from += n) {
        n = BLOCK - b->filled < size ? BLOCK - b->filled : size;
        block = b->image ? NULL : next_block(b);
        if (block)
            memcpy(block + b->filled, from, n);
        else if (!b->image)
            return -1;
        b->filled += n;
        if (b->filled == BLOCK && hand_over(b) < 0)
            return -1;
    }
    return 0;
}

/* Bytes in the block that is being filled are changed there, earlier ones in
 * the file. */
int plait_blocks_out_patch(struct plait_blocks_out *b, uint64_t at,
                           const void *bytes, size_t size)
{
    size_t before = 0;

    if (at < b->begin) {
        before = b->begin - at < size ? (size_t)(b->begin - at) : size;
        if (wait_for(b, 0) < 0 || (b->direct && !set_direct(b, false)) ||
            pwrite(b->fd, bytes, before, (off_t)at) != (ssize_t)before)
            return -1;
    }
    if (before < size)
        memcpy(b->block[b->next] + (at + before - b->begin),
               (const char *)bytes + before, size - before);
    return 0;
}

int plait_blocks_out_finish(struct plait_blocks_out *b)
{
    const char *block = b->image ? b->image + b->begin : b->block[b->next];
    size_t whole;

    if (wait_for(b, 0) < 0)
        return -1;
    if (b->filled == 0)
        return 0;
    whole = b->direct ? b->filled / ALIGN * ALIGN : 0;
    errno = write_all(b, block, whole);
    if (errno == 0 && b->direct && !set_direct(b, false))
        return -1;
    if (errno == 0)
        errno = write_all(b, block + whole, b->filled - whole);
    return errno ? -1 : 0;
}
