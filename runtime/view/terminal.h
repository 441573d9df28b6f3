/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLAIT_RUNTIME_VIEW_TERMINAL_H
#define PLAIT_RUNTIME_VIEW_TERMINAL_H

/* The whole terminal, by ANSI's sequences and termios: of curses four calls
 * would be used. One at a time. */

/* The other screen, no echo, no cursor. -1 with errno: nothing changed. */
int plait_terminal_open(void);
void plait_terminal_size(int *width, int *height);

/* For `seconds` or until a key or another size: 1 to go on, 0 after q, Ctrl-C
 * or a signal that ends programs. */
int plait_terminal_wait(int seconds);

/* As it was before. */
void plait_terminal_close(void);

#endif
