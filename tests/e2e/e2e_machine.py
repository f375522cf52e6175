#!/usr/bin/env python3
"""Template `machine`: whoever writes kernels compiles, boots, sees and types, and what goes wrong stays in the sandbox."""
import base64
import struct

from harness import IMAGES, Suite, has_image, skip, until
from mcp_client import LEGACY, Mcp

if not has_image("machine"):
    skip(f"no template machine in {IMAGES}: images/build.sh machine")
suite = Suite("machine")
check, equal = suite.check, suite.equal

# Says hello on screen and serial line, echoes what comes from keyboard and serial line; F1 is a triple fault.
KERNEL = r"""
__attribute__((section(".multiboot"), used)) static const unsigned header[] = {0x1BADB002, 0, -0x1BADB002u};
static unsigned short *const vga = (unsigned short *)0xb8000;
static unsigned at;
static inline void out(unsigned short port, unsigned char v) { __asm__ volatile("outb %0, %1" : : "a"(v), "Nd"(port)); }
static inline unsigned char in(unsigned short port) { unsigned char v; __asm__ volatile("inb %1, %0" : "=a"(v) : "Nd"(port)); return v; }
static void put(char c) {
    if (c == '\n' || c == '\r') at = (at / 80 + 1) * 80; else vga[at++] = 0x0700 | (unsigned char)c;
    while (!(in(0x3fd) & 0x20)) continue;
    out(0x3f8, c);
}
static void say(const char *s) { while (*s) put(*s++); }
void kmain(void) {
    static const char keys[] = "??1234567890-=??qwertyuiop[]\n?asdfghjkl;'`?\\zxcvbnm,./??? ";
    static const struct { char bytes[6]; } nothing;
    for (unsigned i = 0; i < 80 * 25; i++) vga[i] = 0x0720;
    say("hello from ring 0\n> ");
    for (;;) {
        if (in(0x3fd) & 1) put(in(0x3f8));
        if (!(in(0x64) & 1)) continue;
        unsigned char code = in(0x60);
        if (code == 0x3b) __asm__ volatile("lidt %0; int3" : : "m"(nothing));
        if (code < sizeof keys - 1) put(keys[code]);
    }
}
__attribute__((naked, used)) void _start(void) { __asm__ volatile("mov $stack + 8192, %esp; call kmain"); }
char stack[8192];
"""
LAYOUT = """
ENTRY(_start)
SECTIONS {
    . = 1M;
    .text : { KEEP(*(.multiboot)) *(.text*) }
    .data : { *(.rodata*) *(.data*) *(.bss*) *(COMMON) }
    /DISCARD/ : { *(.eh_frame*) *(.comment) *(.note*) }
}
"""
CC = "gcc -m32 -O1 -ffreestanding -fno-pic -fno-stack-protector -nostdlib -static -T layout.ld -Wl,--build-id=none,--no-warn-rwx-segments kernel.c -o kernel.elf"
BOOT = r"""
bits 16
org 0x7c00
    xor ax, ax
    mov ds, ax
    mov si, text
.next: lodsb
    test al, al
    jz .halt
    mov ah, 0x0e
    int 0x10
    jmp .next
.halt: hlt
    jmp .halt
text: db "five hundred and twelve bytes", 0
times 510 - ($ - $$) db 0
dw 0xaa55
"""


class Author:
    """An agent that writes kernels, by nothing but its tools."""

    def __init__(self, c):
        if not c.gateway:
            c.mcp_url = c.add_gateway("--template", "machine")
        self.tools = Mcp(c.mcp_url, c.tenant("author").key, LEGACY)
        self.tools.initialize()
        self.box = self.tools.tool("sandbox_create", template="machine", ttl_seconds=3600).data["sandbox_id"]
        self.write("kernel.c", KERNEL)
        self.write("layout.ld", LAYOUT)
        self.write("boot.asm", BOOT)

    def write(self, path, text):
        self.tools.tool("file_write", sandbox_id=self.box, path=path, content=text)

    def run(self, command):
        got = self.tools.tool("exec", sandbox_id=self.box, command=command, timeout_seconds=300)
        return got.data["exit_code"], got.data["stdout"].rstrip("\n"), got.data["stderr"]

    def boot(self, words):
        """In the background; what it said first."""
        exec_id = self.tools.tool("exec_start", sandbox_id=self.box, command=f"machine run {words}").data["exec_id"]
        return lambda: self.tools.tool("exec_poll", sandbox_id=self.box, exec_id=exec_id).data

    def close(self):
        self.tools.tool("sandbox_kill", sandbox_id=self.box)
        self.tools.close()


@suite.scenario
def a_kernel_is_written_booted_and_used(c):
    a = Author(c)
    equal("it is compiled", a.run(CC), (0, "", ""))
    seen = a.boot("kernel.elf")
    equal("… and booted", a.run("machine wait 'ring 0' 120")[0], 0)
    equal("its screen is text", a.run("machine screen"), (0, "hello from ring 0\n>", ""))
    a.run("machine type 'ls -l /tmp'")
    equal("what is typed comes to its keyboard", (a.run("machine wait '> ls -l /tmp' 30")[0], a.run("machine screen")[1]), (0, "hello from ring 0\n> ls -l /tmp"))
    a.run("machine serial xyz")
    equal("what is sent to its serial line too", a.run("machine wait xyz 30")[0], 0)
    check("… which says what it says", a.run("machine serial")[1].startswith("hello from ring 0\n> ls -l /tmp\nxyz"), a.run("machine serial"))
    equal("a picture is made", a.run("machine screen --png shot.png"), (0, "", ""))
    shot = a.tools.tool("file_read", sandbox_id=a.box, path="shot.png", limit=1 << 20)
    png = base64.b64decode(shot.result["content"][-1]["data"])
    equal("… that the agent sees", (shot.result["content"][-1]["mimeType"], struct.unpack(">II", png[16:24])), ("image/png", (720, 400)))
    check("… and so does the command that runs it", until(lambda: "xyz" in seen()["stdout"], 30), seen())
    a.run("machine key f1")
    check("a triple fault stops it", until(lambda: a.run("machine status")[1] == "shutdown", 30), a.run("machine status"))
    check("… and its screen can still be seen", "ls -l /tmp" in a.run("machine screen")[1])
    equal("it is turned on again", (a.run("machine restart")[0], until(lambda: a.run("machine wait 'ring 0' 120")[0] == 0 and a.run("machine status")[1] == "running", 30),
                                            a.run("machine screen")[1]), (0, True, "hello from ring 0\n>"))
    equal("… and off", (a.run("machine stop")[0], a.run("machine status")[1]), (0, "off"))
    code, _, err = a.run("machine screen")
    check("what is off says so, and what helps", code == 1 and "it is off" in err and "machine run" in err, err)
    equal("… and its command has ended", until(lambda: seen().get("exit_code"), 1), 0)
    a.close()


@suite.scenario
def what_boots(c):
    a = Author(c)
    equal("a boot sector is assembled", a.run("nasm -f bin boot.asm -o boot.img && stat -c %s boot.img"), (0, "512", ""))
    first = a.boot("--memory 16 boot.img")
    equal("… and booted", a.run("machine wait 'five hundred and twelve bytes' 120")[0], 0)
    a.run(CC)
    code, out, err = a.run("mkdir -p iso/boot/grub && cp kernel.elf iso/boot/ && printf 'set timeout=0\\nmenuentry os { multiboot /boot/kernel.elf }\\n' > iso/boot/grub/grub.cfg && "
                           "grub-mkrescue -o os.iso iso 2>&1 | tail -1")
    check("GRUB makes an ISO", code == 0 and a.run("test -s os.iso")[0] == 0, (out, err))
    a.boot("os.iso")
    check("… that boots", until(lambda: "exit_code" in first(), 30) and a.run("machine wait 'ring 0' 240")[0] == 0, a.run("machine screen"))
    equal("… and ended the one before", first()["exit_code"], 0)
    for words, why in (("run /etc/passwd", "no kernel"), ("run nothing", "no such file"), ("type 'ä'", "no key of a US keyboard"), ("wait never 0.2", "did not come")):
        code, _, err = a.run(f"machine {words}")
        check(f"machine {words}: says why not", code == 1 and why in err, (code, err))
    for words in ("", "frob", "run", "run --memory 1 boot.img", "run --memory 99999 boot.img", "run --append x os.iso", "mouse 1", "screen x", "wait"):
        equal(f"machine {words}: is wrong use", a.run(f"machine {words}")[0], 2)
    equal("it is still on", a.run("machine status")[1], "running")
    a.close()


if __name__ == "__main__":
    suite.main(templates="machine")
