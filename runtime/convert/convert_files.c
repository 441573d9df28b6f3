/* SPDX-License-Identifier: Apache-2.0 */
/* Writes the files of a conversion by several threads, each of which takes the
 * next file. */
#define _GNU_SOURCE
#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdlib.h>

#include "runtime/convert/convert.h"

#define THREADS_MOST 64

struct work {
    int n;
    int (*write_file)(void *arg, int file, struct plait_error *err);
    void *arg;
    atomic_int next;
    pthread_mutex_t lock; /* protects the two below */
    struct plait_error *err;
    int number; /* errno of the first error, 0: none */
};

static void report_failure(struct work *w, const struct plait_error *err)
{
    int number = errno ? errno : EIO;

    pthread_mutex_lock(&w->lock);
    if (w->number == 0) {
        w->number = number;
        *w->err = *err;
    }
    pthread_mutex_unlock(&w->lock);
    atomic_store(&w->next, w->n);
}

static void *run_thread(void *work)
{
    struct work *w = work;
    struct plait_error err;
    int file;

    while ((file = atomic_fetch_add(&w->next, 1)) < w->n)
        if (w->write_file(w->arg, file, &err) < 0)
            report_failure(w, &err);
    return NULL;
}

static int count_threads(int files)
{
    cpu_set_t set;
    int cores = 1;

    if (sched_getaffinity(0, sizeof(set), &set) == 0)
        cores = CPU_COUNT(&set);
    if (cores > THREADS_MOST)
        cores = THREADS_MOST;
    return files < cores ? files : cores;
}

int plait_convert_files(int n,
                        int (*write_file)(void *arg, int file,
                                          struct plait_error *err),
                        void *arg, struct plait_error *err)
{
    struct work w = {.n = n,
                     .write_file = write_file,
                     .arg = arg,
                     .lock = PTHREAD_MUTEX_INITIALIZER,
                     .err = err};
    pthread_t threads[THREADS_MOST];
    int nthreads = count_threads(n), started = 0;

    /* If no more threads can be started, those that run do all the work. */
    while (started < nthreads - 1 &&
           pthread_create(&threads[started], NULL, run_thread, &w) == 0)
        started++;
    run_thread(&w);
    for (int i = 0; i < started; i++)
        pthread_join(threads[i], NULL);
    errno = w.number;
    return w.number ? -1 : 0;
}
