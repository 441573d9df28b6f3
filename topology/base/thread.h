/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLAIT_TOPOLOGY_BASE_THREAD_H
#define PLAIT_TOPOLOGY_BASE_THREAD_H

#include <pthread.h>

/* A thread that takes no signals: those of the process are for the thread that
 * handles them, here the main one. 0, or -1 with errno. */
int plait_thread_create(pthread_t *thread, void *(*run)(void *arg), void *arg);

#endif
