/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE
#include "config.h"

#include "runtime/stuck/record.h"
#include "topology/base/clock.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

enum plait_series plait_op_series(enum plait_op op)
{
    if (op == PLAIT_OP_SEND || op == PLAIT_OP_RECV)
        return PLAIT_SERIES_MESSAGE;
    return op < PLAIT_OP_SEND ? PLAIT_SERIES_DATA : PLAIT_SERIES_CONTROL;
}

struct plait_record *plait_record_create(int *fd)
{
    struct plait_record *record = MAP_FAILED;
    int f = memfd_create(PLAIT_RECORD_FILE, MFD_CLOEXEC), saved;

    if (f >= 0 && ftruncate(f, sizeof(*record)) == 0)
        record = mmap(NULL, sizeof(*record), PROT_READ | PROT_WRITE, MAP_SHARED,
                      f, 0);
    if (record == MAP_FAILED) {
        saved = errno;
        if (f >= 0)
            close(f);
        errno = saved;
        return NULL;
    }
    record->size = sizeof(*record);
    record->gpu = -1;
    record->pid = getpid();
    gethostname(record->host, sizeof(record->host) - 1);
    plait_record_phase(record, PLAIT_PHASE_START, plait_clock_now());
    atomic_store(&record->alive, plait_clock_now());
    atomic_store(&record->moved, plait_clock_now());
    *fd = f;
    return record;
}

void plait_record_destroy(struct plait_record *record, int fd)
{
    int saved = errno;

    if (!record)
        return;
    munmap(record, sizeof(*record));
    close(fd);
    errno = saved;
}

const struct plait_record *plait_record_open(int pid, int fd)
{
    const struct plait_record *record = MAP_FAILED;
    struct stat st;
    char path[64];
    int f;

    snprintf(path, sizeof(path), "/proc/%d/fd/%d", pid, fd);
    f = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (f < 0)
        return NULL;
    if (fstat(f, &st) == 0 && st.st_size == sizeof(*record))
        record = mmap(NULL, sizeof(*record), PROT_READ, MAP_SHARED, f, 0);
    close(f);
    if (record == MAP_FAILED) {
        errno = EINVAL;
        return NULL;
    }
    if (record->magic == PLAIT_RECORD_MAGIC && record->size == sizeof(*record))
        return record;
    plait_record_close(record);
    errno = EINVAL;
    return NULL;
}

/* First only found, as to open a pipe or a device may have an effect; then
 * opened, if it is a regular file of the owner of the process, who cannot
 * exchange it any more. */
static int open_memory(int pid, int fd)
{
    struct stat process, file;
    char path[64];
    int found, f = -1;

    snprintf(path, sizeof(path), "/proc/%d", pid);
    if (stat(path, &process) < 0)
        return -1;
    snprintf(path, sizeof(path), "/proc/%d/fd/%d", pid, fd);
    found = open(path, O_PATH | O_CLOEXEC);
    if (found < 0)
        return -1;
    snprintf(path, sizeof(path), "/proc/self/fd/%d", found);
    errno = EINVAL;
    if (fstat(found, &file) == 0 && S_ISREG(file.st_mode) &&
        file.st_size == sizeof(struct plait_record) &&
        file.st_uid == process.st_uid)
        f = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    close(found);
    /* Only memory has seals: a file system cannot make the reader wait. */
    if (f >= 0 && fcntl(f, F_GET_SEALS) < 0) {
        close(f);
        f = -1;
    }
    return f;
}

int plait_record_copy(int pid, int fd, struct plait_record *copy)
{
    int f = open_memory(pid, fd);
    ssize_t n;

    if (f < 0)
        return -1;
    n = pread(f, copy, sizeof(*copy), 0);
    close(f);
    if (n == sizeof(*copy) && copy->magic == PLAIT_RECORD_MAGIC &&
        copy->size == sizeof(*copy))
        return 0;
    errno = EINVAL;
    return -1;
}

void plait_record_close(const struct plait_record *record)
{
    int saved = errno;

    if (record)
        munmap((void *)record, sizeof(*record));
    errno = saved;
}

void plait_record_step(struct plait_record *record, int64_t step)
{
    if (record)
        atomic_store_explicit(&record->step, step, memory_order_relaxed);
}

void plait_record_phase(struct plait_record *record, enum plait_phase phase,
                        double now)
{
    if (!record)
        return;
    atomic_store_explicit(&record->phase, (int32_t)phase, memory_order_relaxed);
    atomic_store_explicit(&record->phase_since, now, memory_order_relaxed);
}

void plait_record_file(struct plait_record *record, const char *path)
{
    if (record)
        snprintf(record->file, sizeof(record->file), "%.127s", path);
}

struct plait_record_group *plait_record_add_group(struct plait_record *record,
                                                  const char *name, int first,
                                                  int size, int index)
{
    int n = record ? atomic_load(&record->ngroups) : PLAIT_RECORD_GROUPS;
    struct plait_record_group *group;

    if (n >= PLAIT_RECORD_GROUPS)
        return NULL;
    group = &record->group[n];
    snprintf(group->name, sizeof(group->name), "%s", name);
    group->first = first;
    group->size = size;
    group->index = index;
    atomic_store(&record->ngroups, n + 1);
    return group;
}

void plait_record_wait(struct plait_record_group *group, uint64_t tag,
                       uint64_t bytes, int peer, double now)
{
    atomic_store_explicit(&group->bytes, bytes, memory_order_relaxed);
    atomic_store_explicit(&group->peer, peer, memory_order_relaxed);
    atomic_store_explicit(&group->since, now, memory_order_relaxed);
    atomic_store_explicit(&group->waits, tag, memory_order_release);
}

uint64_t plait_record_enter(struct plait_record_group *group, enum plait_op op,
                            uint64_t bytes, int peer, double now)
{
    enum plait_series series = plait_op_series(op);
    uint64_t number =
        atomic_load_explicit(&group->entered[series], memory_order_relaxed) + 1;
    uint64_t tag = plait_op_tag(number, op);

    if (series != PLAIT_SERIES_MESSAGE) {
        struct plait_record_op *last =
            &group->last[series][number % PLAIT_RECORD_LAST];

        atomic_store_explicit(&last->bytes, bytes, memory_order_relaxed);
        atomic_store_explicit(&last->tag, tag, memory_order_relaxed);
    }
    atomic_store_explicit(&group->entered[series], number,
                          memory_order_release);
    plait_record_wait(group, tag, bytes, peer, now);
    return tag;
}

void plait_record_leave(struct plait_record_group *group)
{
    atomic_store_explicit(&group->waits, 0, memory_order_release);
}
