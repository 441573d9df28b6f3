/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "runtime/train/watchdog/signals.h"

#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>

/* Whoever holds the signals sets `held` before it reads `caught`, and a handler
 * writes them in the other order: one of the two sees the other. */
static atomic_int caught;
static atomic_bool held;
static pthread_t holder;

static const int numbers[] = {SIGTERM, SIGINT, SIGUSR1};

static int install(int number);

/* Another thread than the holder does not wait for the exec, and its signals
 * would end with it: the holder's do not. */
static void on_signal(int number)
{
    atomic_store(&caught, number);
    if (!atomic_load(&held) || pthread_equal(pthread_self(), holder))
        return;
    install(number);
    pthread_kill(holder, number);
}

static int install(int number)
{
    struct sigaction action = {.sa_handler = on_signal};

    sigemptyset(&action.sa_mask);
    action.sa_flags = SA_RESTART | SA_RESETHAND;
    return sigaction(number, &action, NULL);
}

int plait_signals_install(void)
{
    for (size_t i = 0; i < sizeof(numbers) / sizeof(numbers[0]); i++)
        if (install(numbers[i]) < 0)
            return -1;
    return plait_signals_hold(false); /* as the life before has held them */
}

int plait_signals_hold(bool hold)
{
    sigset_t set;

    sigemptyset(&set);
    for (size_t i = 0; i < sizeof(numbers) / sizeof(numbers[0]); i++)
        sigaddset(&set, numbers[i]);
    holder = pthread_self();
    atomic_store(&held, hold);
    return pthread_sigmask(hold ? SIG_BLOCK : SIG_UNBLOCK, &set, NULL) == 0
               ? 0
               : -1;
}

int plait_signals_caught(void)
{
    return atomic_load(&caught);
}
