/* SPDX-License-Identifier: Apache-2.0 */
/* Errors that a GPU would not forgive: the first is printed in one line and
 * kept. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "machine.h"

static char first[1024];

const char *emu_faulted(void)
{
    return first[0] != '\0' ? first : NULL;
}

/* Appends ", in FUNCTION at FILE:LINE" of the code at pc, if addr2line
 * knows. */
static void add_place(char *text, size_t size, const void *pc)
{
    char command[512], function[8192] = "", line[1024] = "";
    Dl_info info;
    FILE *f;

    if (dladdr(pc, &info) == 0 || info.dli_fname == NULL)
        return;
    snprintf(
        command, sizeof(command),
        "LD_PRELOAD= addr2line -Cfe '%s' %#lx 2>/dev/null", info.dli_fname,
        (unsigned long)((const char *)pc - 1 - (const char *)info.dli_fbase));
    f = popen(command, "re");
    if (f == NULL)
        return;
    if (fgets(function, sizeof(function), f) != NULL &&
        fgets(line, sizeof(line), f) != NULL) {
        const char *at = strstr(line, "kernels/cuda/");

        function[strcspn(function, "(<\n")] = '\0';
        line[strcspn(line, " \n")] = '\0';
        snprintf(text + strlen(text), size - strlen(text), ", in %s at %s",
                 function, at != NULL ? at : line);
    }
    pclose(f);
}

static void keep(const void *pc, const char *fmt, va_list ap)
{
    char text[sizeof(first)];

    if (first[0] == '\0') {
        vsnprintf(text, sizeof(text), fmt, ap);
        emu_where(text + strlen(text), sizeof(text) - strlen(text));
        if (pc != NULL)
            add_place(text, sizeof(text), pc);
        memcpy(first, text, sizeof(first));
        fprintf(stderr, "# emulated GPU: %s\n", first);
    }
    if (emu_now != NULL)
        emu_leave();
}

void emu_fault(const char *fmt, ...)
{
    va_list ap;

    va_start(ap, fmt);
    keep(NULL, fmt, ap);
    va_end(ap);
}

void emu_fault_at(const void *pc, const char *fmt, ...)
{
    va_list ap;

    va_start(ap, fmt);
    keep(pc, fmt, ap);
    va_end(ap);
}
