/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "runtime/view/terminal.h"

#include <poll.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <termios.h>
#include <unistd.h>

#define CTRL_C 3
#define CTRL_D 4

static struct termios before;
static volatile sig_atomic_t ended;

static void on_end(int signal)
{
    (void)signal;
    ended = 1;
}

/* The signal only has to wake poll(): the size is read before each picture. */
static void on_resize(int signal)
{
    (void)signal;
}

static void catch_signal(int number, void (*handler)(int))
{
    struct sigaction action = {.sa_handler = handler};

    sigaction(number, &action, NULL);
}

int plait_terminal_open(void)
{
    struct termios raw;

    if (tcgetattr(STDIN_FILENO, &before) < 0)
        return -1;
    catch_signal(SIGTERM, on_end);
    catch_signal(SIGINT, on_end);
    catch_signal(SIGHUP, on_end);
    catch_signal(SIGWINCH, on_resize);
    raw = before;
    /* Keys that send signals arrive as bytes: Ctrl-Z would leave the shell
     * with this screen. */
    raw.c_lflag &= ~(ICANON | ECHO | ISIG);
    if (tcsetattr(STDIN_FILENO, TCSANOW, &raw) < 0)
        return -1;
    fputs("\033[?1049h\033[?25l", stdout);
    fflush(stdout);
    return 0;
}

void plait_terminal_size(int *width, int *height)
{
    struct winsize size;

    *width = 80;
    *height = 24;
    if (ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) < 0 || !size.ws_col)
        return;
    *width = size.ws_col;
    *height = size.ws_row;
}

bool plait_terminal_wait(int seconds)
{
    struct pollfd in = {.fd = STDIN_FILENO, .events = POLLIN};
    char key;

    if (!ended && poll(&in, 1, seconds * 1000) > 0 &&
        (read(STDIN_FILENO, &key, 1) <= 0 || strchr("qQ", key) ||
         key == CTRL_C || key == CTRL_D))
        return false;
    return !ended;
}

void plait_terminal_close(void)
{
    fputs("\033[?25h\033[?1049l", stdout);
    fflush(stdout);
    tcsetattr(STDIN_FILENO, TCSANOW, &before);
}
