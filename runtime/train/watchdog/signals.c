/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "runtime/train/watchdog/signals.h"

#include <signal.h>
#include <stddef.h>

static volatile sig_atomic_t caught;

static void on_signal(int number)
{
    caught = number;
}

int plait_signals_install(void)
{
    static const int numbers[] = {SIGTERM, SIGINT, SIGUSR1};
    struct sigaction action = {.sa_handler = on_signal};

    sigemptyset(&action.sa_mask);
    action.sa_flags = SA_RESTART | SA_RESETHAND;
    for (size_t i = 0; i < sizeof(numbers) / sizeof(numbers[0]); i++)
        if (sigaction(numbers[i], &action, NULL) < 0)
            return -1;
    return 0;
}

int plait_signals_caught(void)
{
    return caught;
}
