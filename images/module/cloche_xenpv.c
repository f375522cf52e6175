// SPDX-License-Identifier: GPL-2.0
/*
 * cloche_xenpv - the virtio devices of a Xen-PV guest of cloche-vmm.
 *
 * Such a guest has neither ACPI nor a device tree to find them by.  Device n is where every guest
 * of cloche-vmm has it (vmm/vm.h), and interrupts by event channel PORT + n (vmm/shim/layout.h).
 * Anywhere else the module declines with ENODEV.  It is a work of its own, for the kernel, under
 * the kernel's licence.
 */
#include <linux/io.h>
#include <linux/module.h>
#include <linux/platform_device.h>
#include <uapi/linux/virtio_mmio.h>
#include <xen/events.h>
#include <xen/xen.h>

enum { DEVICES_AT = 0xd0000000, STEP = 0x1000, DEVICES = 8, PORT = 48 };
enum { MAGIC = 0x74726976 }; /* "virt" */

static bool is_there(phys_addr_t at)
{
    void __iomem *regs = ioremap(at, STEP);
    bool there = regs && readl(regs + VIRTIO_MMIO_MAGIC_VALUE) == MAGIC;

    if (regs)
        iounmap(regs);
    return there;
}

static int add(unsigned int n, phys_addr_t at)
{
    int irq = bind_evtchn_to_irq(PORT + n);
    struct resource resources[] = {
        DEFINE_RES_MEM(at, STEP),
        DEFINE_RES_IRQ(irq),
    };

    if (irq < 0)
        return irq;
    return PTR_ERR_OR_ZERO(
        platform_device_register_simple("virtio-mmio", n, resources, ARRAY_SIZE(resources)));
}

/* There is no way out: the devices stay as long as the guest. */
static int __init cloche_xenpv_init(void)
{
    if (!xen_pv_domain())
        return -ENODEV;
    for (unsigned int n = 0; n < DEVICES; n++) {
        phys_addr_t at = DEVICES_AT + (phys_addr_t)n * STEP;
        int rc = is_there(at) ? add(n, at) : 0;

        if (rc < 0)
            pr_err("cloche_xenpv: device %u: %d\n", n, rc);
    }
    return 0;
}
module_init(cloche_xenpv_init);

MODULE_DESCRIPTION("virtio devices of a Xen-PV guest of cloche-vmm");
MODULE_LICENSE("GPL");
