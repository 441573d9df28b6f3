/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>

#include "tap.h"
#include "topology/base/capture.h"
#include "topology/base/error.h"
#include "topology/base/text.h"

/* In a program that has inherited that SIGCHLD is ignored. */
static void check_capture(void)
{
    char *argv[] = {(char *)"sh", (char *)"-c", (char *)"echo said; exit 3",
                    NULL};
    char *text;
    size_t size;
    int status = 0;

    signal(SIGCHLD, SIG_IGN);
    text = plait_capture(argv, 0, 60, &size, &status);
    ok(text && strcmp(text, "said\n") == 0 && WIFEXITED(status) &&
           WEXITSTATUS(status) == 3,
       "what a command prints, and its exit status: %d", status);
    free(text);
}

static const struct {
    const char *from, *to, *what;
} cleaned[] = {
    {"", "", "nothing"},
    {"plain ~ text", "plain ~ text", "ASCII"},
    {"Gr\xc3\xb6\xc3\x9f"
     "e \xe2\x82\xac \xf0\x9f\x8c\xb2",
     "Gr\xc3\xb6\xc3\x9f"
     "e \xe2\x82\xac \xf0\x9f\x8c\xb2",
     "two, three and four bytes of UTF-8"},
    {"a\nb\r\tc", "a?b??c", "ends of lines and tabs"},
    {"\033[2J\033]0;x\007\177", "?[2J?]0;x??", "escape sequences"},
    {"\x9b"
     "2J\x80",
     "?2J?", "C1 as bytes"},
    {"\xc2\x9b"
     "2J\xc2\x80\xc2\xa0",
     "?2J?\xc2\xa0", "C1 as UTF-8"},
    {"\xe2\x80\xae"
     "a\xe2\x80\xaa"
     "b\xe2\x81\xa6"
     "c\xe2\x81\xa9\xe2\x80\x8f",
     "?a?b?c??", "the direction of text"},
    {"a\xe2\x80\xa8"
     "b\xe2\x80\xa9",
     "a?b?", "lines as Unicode has them"},
    {"\xff\xfe", "??", "bytes that are in no UTF-8"},
    {"\xc0\x9b\xe0\x82\x9b\xf0\x80\x80\x9b", "?????????",
     "longer forms than needed"},
    {"\xed\xa0\x80\xf4\x90\x80\x80", "???????",
     "surrogates and what is above U+10FFFF"},
    {"\xe2\x82", "??", "a character that is cut short"},
    {"\xe2\x82\033[m", "???[m", "an escape in a character"},
    {"\xf0\x9f\xc3\xb6", "??\xc3\xb6", "a character after a cut one"},
};

static void check_clean(void)
{
    struct plait_error err;
    char text[64];

    for (size_t i = 0; i < sizeof(cleaned) / sizeof(cleaned[0]); i++) {
        snprintf(text, sizeof(text), "%s", cleaned[i].from);
        plait_text_clean(text);
        ok(plait_text_is_clean(text) && plait_text_is_clean(cleaned[i].from) ==
                                            !strcmp(cleaned[i].from, text),
           "told: %s", cleaned[i].what);
        ok(strcmp(text, cleaned[i].to) == 0, "cleaned: %s", cleaned[i].what);
    }
    plait_errorf(&err, "no file %s", "a\nplait: all is well\033[A");
    ok(strcmp(err.text, "no file a?plait: all is well?[A") == 0,
       "an error is one line without escape sequences");
}

/* A shell gives the word back. */
static void check_quoted(const char *word)
{
    char room[PLAIT_QUOTED_MAX], command[5000], got[300] = "";
    const char *quote = plait_text_quote(word, room);
    FILE *shell;

    snprintf(command, sizeof(command), "printf '%%s.' %s", quote);
    shell = popen(command, "r");
    if (shell) {
        got[fread(got, 1, sizeof(got) - 1, shell)] = '\0';
        pclose(shell);
    }
    ok(strncmp(got, word, strlen(word)) == 0 &&
           strcmp(got + strlen(word), ".") == 0,
       "a shell takes %s as it was", quote);
}

static void check_quotes(void)
{
    static const char *const words[] = {"",    "a b", "it's", "$HOME", "*", "~",
                                        "a;b", "\\",  "\"",   "&",     "''"};
    char room[PLAIT_QUOTED_MAX], full[3000];

    for (size_t i = 0; i < sizeof(words) / sizeof(words[0]); i++)
        check_quoted(words[i]);
    ok(strcmp(plait_text_quote("/a-b/c_d.yaml", room), "/a-b/c_d.yaml") == 0,
       "what needs no quotes has none");
    memset(full, '\'', sizeof(full) - 1);
    full[sizeof(full) - 1] = '\0';
    ok(plait_text_quote(full, room) == full,
       "what does not fit stays as it is");
}

int main(void)
{
    struct plait_error err;
    char big[1024];

    errno = ENOENT;
    ok(plait_errorf(&err, "%s:%d", "a", 7) == -1, "returns -1");
    ok(strcmp(err.text, "a:7") == 0, "formats");
    ok(errno == ENOENT, "keeps errno");
    ok(plait_errorf(NULL, "x") == -1, "takes NULL");
    memset(big, 'x', sizeof(big));
    big[sizeof(big) - 1] = '\0';
    plait_errorf(&err, "%s", big);
    ok(strlen(err.text) == sizeof(err.text) - 1, "cuts what is too long");
    plait_errorf(&err, "no file");
    errno = EIO;
    ok(plait_error_prefix(&err, "data.train: ") == -1 && errno == EIO &&
           strcmp(err.text, "data.train: no file") == 0,
       "what is wrong gets the name of a key");
    plait_errorf(&err, "%s", "");
    plait_error_prefix(&err, "data.train: ");
    ok(err.text[0] == '\0', "... unless another rank says it");
    check_clean();
    check_quotes();
    check_capture();
    return done_testing();
}
