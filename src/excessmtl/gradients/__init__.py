"""The engine: what a method needs to know about each task's gradient, at the least cost."""
