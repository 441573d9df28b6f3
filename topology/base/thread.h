/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLAIT_TOPOLOGY_BASE_THREAD_H
#define PLAIT_TOPOLOGY_BASE_THREAD_H

#include <pthread.h>

/* Start a thread that blocks all signals, so that the main thread gets those of
 * the process. 0, or -1 with errno. */
int plait_thread_create(pthread_t *thread, void *(*run)(void *arg), void *arg);

#endif
