"""Virtual machines: QEMU guests, their images, and the agent inside them."""
