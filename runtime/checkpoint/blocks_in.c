/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE
#include "config.h"

#include "runtime/checkpoint/blocks_in.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdlib.h>
#include <unistd.h>

#include "topology/base/thread.h"

#define BLOCK ((size_t)4 << 20)
#define ALIGN ((size_t)64 << 10)
/* One block in use by the caller, one ready, one being read. */
enum { BLOCKS = 3 };

struct plait_blocks_in {
    int fd;
    uint64_t size;
    char *block[BLOCKS];
    uint64_t taken; /* bytes of the blocks that the caller got so far */
    int next;       /* block that the caller gets next */
    bool holds;     /* the caller still uses the block before it */
    bool threaded;
    pthread_t thread;
    pthread_mutex_t mutex;
    pthread_cond_t changed;
    /* Under the mutex. */
    int full; /* blocks that were read, the caller's included */
    bool stop;
    int number; /* errno of what failed; 0: nothing has */
};

static size_t block_size(const struct plait_blocks_in *b, uint64_t at)
{
    return b->size - at < BLOCK ? (size_t)(b->size - at) : BLOCK;
}

/* Reads all of it, or returns errno. The thread does nothing else, as the disk
 * may wait while it does. The kernel reads ahead of such reads by itself. Asked
 * to (POSIX_FADV_WILLNEED) it does so page by page, which holds this thread up
 * for half of the time that the disk takes. */
static int read_block(struct plait_blocks_in *b, uint64_t at, char *to)
{
    size_t size = block_size(b, at);
    ssize_t n;

    while (size > 0) {
        n = pread(b->fd, to, size, (off_t)at);
        if (n == 0)
            return ENODATA;
        if (n < 0 && errno != EINTR)
            return errno;
        if (n < 0)
            continue;
        to += n;
        at += (uint64_t)n;
        size -= (size_t)n;
    }
    return 0;
}

/* Wait for a free block; false: the reader is to stop. */
static bool wait_for_room(struct plait_blocks_in *b)
{
    bool go_on;

    pthread_mutex_lock(&b->mutex);
    while (b->full == BLOCKS && !b->stop)
        pthread_cond_wait(&b->changed, &b->mutex);
    go_on = !b->stop;
    pthread_mutex_unlock(&b->mutex);
    return go_on;
}

static void *read_blocks(void *blocks)
{
    struct plait_blocks_in *b = blocks;
    int slot = 0, number = 0;

    for (uint64_t at = 0; at < b->size && number == 0; at += BLOCK) {
        if (!wait_for_room(b))
            break;
        number = read_block(b, at, b->block[slot]);
        slot = (slot + 1) % BLOCKS;
        pthread_mutex_lock(&b->mutex);
        if (number == 0)
            b->full++;
        b->number = number;
        pthread_cond_broadcast(&b->changed);
        pthread_mutex_unlock(&b->mutex);
    }
    return NULL;
}

static int allocate_blocks(struct plait_blocks_in *b)
{
    int n = b->size > BLOCK ? BLOCKS : 1;
    size_t size = b->size > BLOCK ? BLOCK : (size_t)b->size + 1;
    void *block;

    for (int i = 0; i < n; i++) {
        errno = posix_memalign(&block, ALIGN, size);
        if (errno)
            return -1;
        b->block[i] = block;
    }
    return 0;
}

static void free_blocks(struct plait_blocks_in *b)
{
    for (int i = 0; i < BLOCKS; i++)
        free(b->block[i]);
    free(b);
}

struct plait_blocks_in *plait_blocks_in_create(int fd, uint64_t size)
{
    struct plait_blocks_in *b = calloc(1, sizeof(*b));

    if (!b)
        return NULL;
    b->fd = fd;
    b->size = size;
    if (allocate_blocks(b) < 0 || pthread_mutex_init(&b->mutex, NULL) != 0)
        goto error;
    if (pthread_cond_init(&b->changed, NULL) != 0)
        goto no_condition;
    if (size > BLOCK && plait_thread_create(&b->thread, read_blocks, b) < 0)
        goto no_thread;
    b->threaded = size > BLOCK;
    return b;
no_thread:
    pthread_cond_destroy(&b->changed);
no_condition:
    pthread_mutex_destroy(&b->mutex);
error:
    free_blocks(b);
    return NULL;
}

void plait_blocks_in_destroy(struct plait_blocks_in *b)
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
    free_blocks(b);
    errno = saved;
}

/* Release the caller's block, and wait for the next one. */
static int wait_for_block(struct plait_blocks_in *b)
{
    int number;

    if (!b->threaded)
        return read_block(b, 0, b->block[0]);
    pthread_mutex_lock(&b->mutex);
    if (b->holds) {
        b->full--;
        pthread_cond_broadcast(&b->changed);
    }
    b->holds = false;
    while (b->full == 0 && b->number == 0)
        pthread_cond_wait(&b->changed, &b->mutex);
    number = b->full == 0 ? b->number : 0;
    b->holds = number == 0;
    pthread_mutex_unlock(&b->mutex);
    return number;
}

int plait_blocks_in_next(struct plait_blocks_in *b, const char **block,
                         size_t *n)
{
    if (b->taken < b->size)
        errno = wait_for_block(b);
    else
        errno = 0;
    if (errno)
        return -1;
    *n = block_size(b, b->taken);
    *block = b->block[b->next];
    b->next = (b->next + 1) % BLOCKS;
    b->taken += *n;
    return 0;
}
