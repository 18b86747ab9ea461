"""Files that hold many pictures: what is in them, and the bytes of any one."""
