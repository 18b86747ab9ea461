"""Files that hold many images: what is in them, and the bytes of any one."""
