/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "runtime/train/signals.h"

#include <signal.h>
#include <stddef.h>

static volatile sig_atomic_t caught;

static void on_signal(int number)
{
    caught = number;
}

int plait_signals_install(void)
{
    struct sigaction action = {.sa_handler = on_signal};

    sigemptyset(&action.sa_mask);
    action.sa_flags = SA_RESTART | SA_RESETHAND;
    if (sigaction(SIGTERM, &action, NULL) < 0)
        return -1;
    return sigaction(SIGINT, &action, NULL);
}

int plait_signals_caught(void)
{
    return caught;
}
