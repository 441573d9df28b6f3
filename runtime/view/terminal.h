/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLAIT_RUNTIME_VIEW_TERMINAL_H
#define PLAIT_RUNTIME_VIEW_TERMINAL_H

#include <stdbool.h>

/* Uses the whole terminal, by ANSI's sequences and termios: only four calls of
 * curses would be used. One at a time. */

/* Switches to the alternate screen, without echo and cursor. -1 with errno:
 * nothing changed. */
int plait_terminal_open(void);
void plait_terminal_size(int *width, int *height);

/* Waits for `seconds`, or until a key is pressed or the size changes: 1 to go
 * on, 0 after q, Ctrl-C or a signal that ends programs. */
bool plait_terminal_wait(int seconds);

/* Restores the terminal. */
void plait_terminal_close(void);

#endif
