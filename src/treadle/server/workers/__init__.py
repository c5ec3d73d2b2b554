"""Several worker processes behind one port: started, replaced and stopped by a supervisor."""
