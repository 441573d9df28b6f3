/* SPDX-License-Identifier: Apache-2.0 */
#include "topology/base/thread.h"

#include <errno.h>
#include <signal.h>

int plait_thread_create(pthread_t *thread, void *(*run)(void *arg), void *arg)
{
    sigset_t all, before;
    int number;

    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    number = pthread_create(thread, NULL, run, arg);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (number == 0)
        return 0;
    errno = number;
    return -1;
}
